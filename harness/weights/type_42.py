"""Which layout type 42 has in a GGUF file. The header does not state it; the offsets of the tensors show it.

ggml's Q2_0 has 64 weights in 18 bytes. Under the same number, the first files of PrismML have 128 in 34 bytes (later
142, PQ2_0), and those of Hy-MT 256 in 42 bytes (later 43, STQ1_0). A layout fits if every tensor of the type, with its
padding, ends where the next one begins and the last one ends inside the file. Small tensors may fit several layouts.
Then nonzero bytes between tensors exclude a layout, and so does a remainder of the file that is longer than padding. If
several layouts still fit, none is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tritmark.harness.weights.gguf_types import PQ2_0, Q2_0, STQ1_0, GgufType
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.plain_file import PlainFile

NUMBER = 42
OPEN = "type_42"
"""The dtype if several layouts fit; `WeightType.layouts` names them."""
QUADS = "type_42_stq"
"""The dtype of STQ1_0 under this number; its groups hold other weights than those of type 43."""
LAYOUTS = {"g64": Q2_0, "g128": PQ2_0, "quads": STQ1_0._replace(dtype=QUADS)}
"""By the name of the layout in the key tritmark.layout and in --layout."""
_LEGAL = (
    "blocks of 18 bytes for 64 weights (Q2_0), 34 bytes for 128 (PQ2_0 before its renaming), or 42 for 256 (STQ1_0)"
)

_MOST_PADDING = 4096
"""Bytes of padding that are checked: an alignment can be any power of two."""


class Extent(NamedTuple):
    """The range of one tensor of type 42."""

    name: str
    shape: tuple[int, ...]
    begin: int
    """Byte in the file."""
    end: int
    """Begin of the next tensor, or end of the file."""
    last: bool


def layout_of(file: PlainFile, extents: Sequence[Extent], alignment: int, said: object) -> GgufType | None:
    """The layout of all tensors of type 42 in a file; None if several fit. `said` is the file's tritmark.layout.

    Raises WeightFileError if no layout fits, or if `said` does not.
    """
    extents = [each for each in extents if each.end <= file.size]  # the others are refused as truncated
    fitting = {name: type for name, type in LAYOUTS.items() if all(_fits(each, type, alignment) for each in extents)}
    if not fitting:
        of = max(extents, key=lambda each: prod(each.shape))
        found = f"tensor {inert(of.name)} of type {NUMBER}, {of.end - of.begin} bytes for {prod(of.shape)} weights"
        raise file.error(found, f"{_LEGAL}, the same in all tensors of the type")
    for narrower in (_exact_end, _zero_gaps):
        kept = {name: type for name, type in fitting.items() if narrower(file, extents, type, alignment)}
        fitting = kept or fitting
    if said in LAYOUTS:
        if said not in fitting:
            raise file.error(f"tritmark.layout {said}, but type {NUMBER} of other extents", " or ".join(fitting))
        return LAYOUTS[str(said)]
    return next(iter(fitting.values())) if len(fitting) == 1 else None


def _fits(extent: Extent, type: GgufType, alignment: int) -> bool:
    if (extent.shape[-1] if extent.shape else 1) % type.block_elements:
        return False
    rest = extent.end - extent.begin - type.nbytes(extent.shape)
    return rest >= 0 if extent.last else 0 <= rest < alignment


def _exact_end(file: PlainFile, extents: Sequence[Extent], type: GgufType, alignment: int) -> bool:
    """Whether only padding follows the last tensor."""
    return all(each.end - each.begin - type.nbytes(each.shape) < alignment for each in extents)


def _zero_gaps(file: PlainFile, extents: Sequence[Extent], type: GgufType, alignment: int) -> bool:
    """Whether the padding is zero, as ggml and the gguf package write it."""
    for each in extents:
        end = each.begin + type.nbytes(each.shape)
        if any(file.read(end, min(each.end - end, alignment, _MOST_PADDING))):
            return False
    return True
