"""Faults that engines have had, as changes of the reference: logits that agree with one name it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tritmark.torch.model.reference.architecture import ACTIVATIONS, Architecture
from tritmark.torch.model.reference.forward import Changed
from tritmark.torch.model.reference.tensors import Matrix, ModelTensors

_BASES = (1e4, 5e5, 1e6)
_EPS = (1e-5, 1e-6)

Hypothesis = tuple[str, Architecture, Changed | None]
"""The fault in words, and what computes it."""


def hypotheses(graph: Architecture, tensors: ModelTensors) -> Iterator[Hypothesis]:
    """The faults that a graph can have."""
    for name in (*ACTIVATIONS, "gelu"):
        if name != graph.activation:
            yield f"activation {name} in place of {graph.activation}", replace(graph, activation=name), None
    for base in _BASES:
        if base != graph.theta:
            yield f"rope base {base:g} in place of {graph.theta:g}", replace(graph, theta=base), None
    yield "rope of neighbours in place of halves", replace(graph, interleaved=True), None
    yield "rows of q and k permuted", graph, _permuting(graph)
    for eps in _EPS:
        if eps != graph.eps:
            yield f"eps {eps:g} of norms in place of {graph.eps:g}", replace(graph, eps=eps), None
    if graph.sub_norms:
        yield "no sub-norms", replace(graph, sub_norms=False), None
    if graph.head_norms:
        yield "no norms of q and k", replace(graph, head_norms=False), None
    if not graph.tied:
        yield "the embedding as head", replace(graph, tied=True), None
    if graph.expert_layers:
        other = replace(graph, normed_gates=not graph.normed_gates)
        yield f"norm_topk_prob {other.normed_gates}", other, None
    if tensors.scaled:
        yield "weight_scale in the other sense", graph, _inverse


def _permuting(graph: Architecture) -> Changed:
    """As llama.cpp's converter of Llama permutes the rows of each head, for rope of neighbours."""

    def changed(name: str, weights: Matrix) -> Matrix:
        heads = {"q_proj": graph.heads, "k_proj": graph.key_heads}.get(name.rpartition(".")[2])
        if heads is None:
            return weights
        rows = weights.values.reshape(heads, 2, graph.head_size // 2, -1).swapaxes(1, 2)
        return weights._replace(values=rows.reshape(weights.values.shape))

    return changed


def _inverse(name: str, weights: Matrix) -> Matrix:
    return weights._replace(values=weights.values / weights.scale**2) if weights.scale else weights
