"""Which tensors of a file a run multiplies with, and why its figures leave out the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod
from typing import NamedTuple

from tritmark.harness.weights.experts import Experts, is_expert
from tritmark.harness.weights.gguf_types import described, is_unread
from tritmark.harness.weights.published_names import gguf_name
from tritmark.harness.weights.tensor import FLOATS, TensorInfo
from tritmark.harness.weights.ternary import TernaryInfo, TernaryWeights

_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"
_MATRIX_AXES = 2


class TensorsLeftOut(NamedTuple):
    """Tensors that are left out for the same reason."""

    reason: str
    names: tuple[str, ...]


def judged(weights: TernaryWeights) -> tuple[TernaryInfo, ...]:
    """The matrices that tokens multiply with: all, without the embedding if there is a separate head, and without
    experts if the metadata does not state how many a token reads. An embedding that is also the head is read in full.
    """
    head = any(gguf_name(each.name) == _HEAD for each in weights.source.tensors)
    reads = reads_of(weights)
    return tuple(
        each for each in weights.matrices if not (head and is_embedding(each.name)) and reads[each.name] is not None
    )


def reads_of(weights: TernaryWeights) -> dict[str, float | None]:
    """How many products a token needs with each matrix, by name; see Experts.reads."""
    experts = Experts(weights.source)
    return {each.name: experts.reads(each) for each in weights.matrices}


def is_embedding(name: str) -> bool:
    """Whether this is the name of the model's embedding, of which a token reads one row."""
    return gguf_name(name) == _EMBEDDING


def left_out(weights: TernaryWeights, names: Collection[str]) -> Iterator[TensorsLeftOut]:
    """All tensors except `names` and their scales, grouped by reason, most bytes first."""
    source = weights.source
    by: dict[str, list[TensorInfo]] = {}
    for each in source.tensors:
        if each.name not in names and each.name not in weights.scales and each.nbytes:
            by.setdefault(_reason(weights, each), []).append(each)
    sized = {reason: sum(each.nbytes for each in of) for reason, of in by.items()}
    for reason in sorted(by, key=lambda reason: -sized[reason]):
        yield TensorsLeftOut(reason, tuple(each.name for each in by[reason]))


def _reason(weights: TernaryWeights, tensor: TensorInfo) -> str:
    if tensor.name in weights.not_ternary:
        return weights.not_ternary[tensor.name]
    if tensor.name in weights.unread:
        return weights.unread[tensor.name]
    if is_unread(tensor.dtype) and not weights.is_ternary(tensor):
        return f"{described(tensor.dtype)} is not read"
    if is_embedding(tensor.name):
        return "embedding, of which a token reads one row"
    info = weights.matrix(tensor.name)
    if info is not None and is_expert(info):
        return "ternary experts, and the metadata does not state how many a token reads"
    if tensor.dtype in FLOATS and (len(tensor.shape) < _MATRIX_AXES or prod(tensor.shape[:-1]) == 1):
        return "vectors of floats"
    return f"{tensor.dtype}, not judged as linear layers"
