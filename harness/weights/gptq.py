"""GPTQ folders with 2 bits: int32 words MODULE.qweight with MODULE.qzeros, MODULE.scales and often MODULE.g_idx.

A weight is (field - zero point) * scale. `checkpoint_format` states what qzeros store: gptq_v2 the zero points, gptq
(the default) one less. Some tools state gptq over zero points of gptq_v2, so words that are ternary in the other
reading are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.finite import check_finite
from tritmark.harness.weights.format_names import GPTQ_2
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import TensorInfo
from tritmark.harness.weights.words import FoundWords, Words, require_floats, stored_points

PACKED = ".qweight"
_IN_WORD = 16
_ADDED = {"gptq": 1, "gptq_v2": 0}
"""What is added to stored zero points, by checkpoint_format."""


@dataclass(frozen=True, slots=True)
class GptqSettings:
    """The settings of a configuration."""

    group_size: int | None
    """None for one scale for a row."""
    added: int
    """What is added to stored zero points."""


def settings_of(said: Mapping[str, object], wrong: Callable[[str, str], WeightFileError]) -> GptqSettings:
    """The settings in `said`. `wrong(found, legal)` makes the error for settings that are not read."""
    bits, size = said.get("bits"), said.get("group_size", -1)
    if bits != 2 or isinstance(bits, bool):
        text = f"quant_method 'gptq' (GPTQ: integers with zero points) with bits {inert(bits)}"
        raise wrong(f"{text}, whose tensors tritmark cannot read as ternary codes", "bits 2")
    if isinstance(size, bool) or not isinstance(size, int) or (size < 1 and size != -1):
        raise wrong(f"group_size {inert(size)}", "an integer above 0, or -1")
    stated = {said[key] for key in ("checkpoint_format", "format") if isinstance(said.get(key), str)} or {"gptq"}
    if len(stated) > 1 or not stated <= _ADDED.keys():
        raise wrong(f"checkpoint_format {' and '.join(sorted(map(inert, stated)))}", " or ".join(_ADDED))
    return GptqSettings(size if size > 0 else None, _ADDED[str(stated.pop())])


def found(source: WeightSource, settings: GptqSettings | None, tensor: TensorInfo) -> FoundWords | None:
    """What a tensor of words is; None for any other tensor.

    Raises WeightFileError for words without settings, scales or zero points, for shapes that contradict each other or
    the settings, for numbers that are not finite, and for words that are ternary in the other checkpoint format.
    """
    if not tensor.name.endswith(PACKED):
        return None
    module = tensor.name.removesuffix(PACKED)
    if settings is None:
        legal = "a configuration beside the file with quant_method gptq and bits 2"
        raise source.error(tensor.name, f"{tensor.dtype} words without settings", legal)
    scales, points = (_needed(source, tensor, f"{module}.{each}") for each in ("scales", "qzeros"))
    if tensor.dtype != "int32" or len(tensor.shape) != 2 or 0 in tensor.shape:
        raise source.error(tensor.name, f"{tensor.dtype} of shape {tensor.shape}", "int32 (K / 16, N)")
    N, K = tensor.shape[1], tensor.shape[0] * _IN_WORD
    order = source.tensor(f"{module}.g_idx")
    if order is not None and order.shape != (K,):
        stored = order.shape[0] if len(order.shape) == 1 else 0
        bits = 32 * tensor.shape[0] / stored if stored else 0
        if bits in {3, 4, 8}:
            return FoundWords(reason=f"GPTQ, {bits:g} bits, which is not ternary")
        raise source.error(order.name, f"of shape {order.shape}", f"({K},), the columns of {inert(tensor.name)}")
    group = settings.group_size or K
    groups = -(-K // group)
    if K % group:
        raise source.error(tensor.name, f"{K} columns with group_size {group}", f"a multiple of {group}")
    require_floats(source, scales, ((groups, N),))
    check_finite(source, scales.name, source.read(scales.name))
    wanted = groups, -(-N // _IN_WORD)
    if points.dtype != "int32" or points.shape != wanted:
        legal = f"int32 {wanted}, packed along the rows"
        raise source.error(points.name, f"{points.dtype} of shape {points.shape}", legal)
    if order is not None and not _in_sequence(source, order, group):
        return FoundWords(reason="GPTQ, 2 bits with columns in another order (g_idx), which is not read")
    stored_values = stored_points(source, points, N, along_rows=True)
    others = set((np.unique(stored_values) + settings.added).tolist()) - {1, 2}
    if others:
        text = f"zero point {min(others)}, ternary is 1 or 2"
        other = "gptq_v2" if settings.added else "gptq"
        return FoundWords(reason=f"GPTQ, 2 bits, not ternary: {text}; checkpoint_format {other} reads it differently")
    _require_one_meaning(source, tensor, settings, stored_values)
    beside = (order,) if order is not None else ()
    return FoundWords((N, K), 0, Words(GPTQ_2, scales, group, points, beside, added=settings.added))


def _needed(source: WeightSource, tensor: TensorInfo, name: str) -> TensorInfo:
    there = source.tensor(name)
    if there is None:
        raise source.error(tensor.name, f"words without {inert(name)}", f"{inert(name)} beside them")
    return there


def _in_sequence(source: WeightSource, order: TensorInfo, group: int) -> bool:
    """Whether column k has the scale k / group."""
    if order.dtype not in {"int32", "int64"}:
        raise source.error(order.name, order.dtype, "int32")
    stored = source.read_bytes(order.name).view(np.dtype(order.dtype))
    return bool((stored == np.arange(stored.size) // group).all())


def _require_one_meaning(
    source: WeightSource, tensor: TensorInfo, settings: GptqSettings, stored: NDArray[np.uint8]
) -> None:
    """Raise WeightFileError if the other checkpoint format makes all weights ternary: alone, so that the stated one is
    incorrect, or too."""
    if len(np.unique(stored)) > 1:
        return
    here, there = (int(stored.flat[0]) + added for added in (settings.added, 1 - settings.added))
    seen: set[int] = set()
    for chunk in source.chunks(tensor.name):
        bytes_there: NDArray[Any] = np.unique(np.frombuffer(chunk, np.uint8))
        seen |= set(np.unique(bytes_there[:, np.newaxis] >> np.arange(0, 8, 2, dtype=np.uint8) & 3).tolist())
        if any(abs(field - there) > 1 for field in seen):
            return
    other, own = ("gptq_v2", "gptq") if settings.added else ("gptq", "gptq_v2")
    fields, ternary = " and ".join(map(str, sorted(seen))), all(abs(field - here) <= 1 for field in seen)
    only = (
        f"both of {own} and of {other}" if ternary else f"of {other} and not of {own}, which the configuration states"
    )
    legal = "words with one meaning" if ternary else f"checkpoint_format {other}, if that is what wrote the file"
    raise source.error(tensor.name, f"fields {fields} alone, which are ternary with the zero points {only}", legal)
