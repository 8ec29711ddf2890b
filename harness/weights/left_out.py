"""Which tensors of a file a run multiplies with, and why its figures leave out the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod
from typing import NamedTuple

from tritmark.harness.weights.gguf_types import described, is_unread
from tritmark.harness.weights.gguf_values import value_of
from tritmark.harness.weights.published_names import gguf_name
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import FLOATS, TensorInfo
from tritmark.harness.weights.ternary import TernaryInfo, TernaryWeights

_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"
_MATRIX_AXES = 2


class TensorsLeftOut(NamedTuple):
    """Tensors that are left out for the same reason."""

    reason: str
    names: tuple[str, ...]


def judged(weights: TernaryWeights) -> tuple[TernaryInfo, ...]:
    """The matrices that every token multiplies with: all, without the embedding if there is a separate head. An
    embedding that is also the head is read in full."""
    head = any(gguf_name(each.name) == _HEAD for each in weights.source.tensors)
    return tuple(each for each in weights.matrices if not (head and is_embedding(each.name)))


def is_embedding(name: str) -> bool:
    """Whether this is the name of the model's embedding, of which a token reads one row."""
    return gguf_name(name) == _EMBEDDING


def left_out(weights: TernaryWeights, names: Collection[str]) -> Iterator[TensorsLeftOut]:
    """All tensors except `names` and their scales, grouped by reason, most bytes first."""
    source = weights.source
    experts = _experts(source)
    by: dict[str, list[TensorInfo]] = {}
    for each in source.tensors:
        if each.name not in names and each.name not in weights.scales and each.nbytes:
            by.setdefault(_reason(weights, each, experts), []).append(each)
    sized = {reason: sum(each.nbytes for each in of) for reason, of in by.items()}
    for reason in sorted(by, key=lambda reason: -sized[reason]):
        yield TensorsLeftOut(reason, tuple(each.name for each in by[reason]))


def _reason(weights: TernaryWeights, tensor: TensorInfo, experts: str) -> str:
    if is_unread(tensor.dtype) and not weights.is_ternary(tensor):
        return f"{described(tensor.dtype)} is not read"
    if is_embedding(tensor.name):
        return "embedding, of which a token reads one row"
    if len(tensor.shape) > _MATRIX_AXES and weights.is_ternary(tensor):
        return f"ternary experts (3-D){experts}"
    if tensor.dtype in FLOATS and (len(tensor.shape) < _MATRIX_AXES or prod(tensor.shape[:-1]) == 1):
        return "vectors of floats"
    return f"{tensor.dtype}, not judged as linear layers"


def _experts(source: WeightSource) -> str:
    """How many experts a token reads, according to the metadata."""
    found = {}
    for each in source.header.pairs:
        end = each.key.rpartition(".")[2]
        if end in {"expert_count", "expert_used_count"}:
            found[end] = value_of(source, each)
    if len(found) == len(("used", "all")):
        return f", of which a token reads {found['expert_used_count']} of {found['expert_count']}"
    return ", of which a token reads some"
