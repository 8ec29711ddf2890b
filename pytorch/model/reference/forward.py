"""The logits of a whole model in float64, also with its roundings drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritmark.torch.model.reference import parts
from tritmark.torch.model.reference.architecture import Architecture
from tritmark.torch.model.reference.rounding import FLOAT32
from tritmark.torch.model.reference.tensors import Floats, Matrix, ModelTensors

Changed = Callable[[str, Matrix], Matrix]
"""Makes a fault of the weights of a linear layer, which it gets with its name."""


@dataclass(frozen=True, slots=True)
class DrawnRoundings:
    """Forward passes at once: the first exact, then `samples` with roundings drawn uniformly: Monte Carlo arithmetic
    (Parker, 1997). Each part's outputs move by up to one unit in the last place of the dtype, and sums of K products by
    what K roundings of float32 in sequence add up to, sqrt(K) of them."""

    samples: int = 0
    ulp: float = 0.0
    seed: int = 0


class Forward:
    """A forward pass of a graph."""

    def __init__(
        self,
        tensors: ModelTensors,
        graph: Architecture,
        drawn: DrawnRoundings | None = None,
        changed: Changed | None = None,
    ) -> None:
        drawn = drawn or DrawnRoundings()
        self._tensors, self._graph, self._changed = tensors, graph, changed
        self._passes, self._ulp = 1 + drawn.samples, drawn.ulp
        self._random = np.random.default_rng(drawn.seed)

    def logits(self, tokens: NDArray[np.int64]) -> Floats:
        """The logits (passes, T, vocabulary) of tokens (T,)."""
        graph = self._graph
        x = np.repeat(self._tensors.rows("model.embed_tokens.weight", tokens)[None], self._passes, 0)
        x = self._rounded(x)
        angles, _ = parts.angles(np.arange(len(tokens), dtype=np.float64), graph.theta, graph.head_size)
        cos, sin = np.cos(angles), np.sin(angles)
        if graph.interleaved:
            half = graph.head_size // 2
            cos, sin = (np.repeat(each[:, :half], 2, -1) for each in (cos, sin))
        for number in range(graph.layers):
            name = f"model.layers.{number}"
            x = self._rounded(
                x + self._attention(f"{name}.self_attn", self._norm(f"{name}.input_layernorm", x), cos, sin)
            )
            inner = self._norm(f"{name}.post_attention_layernorm", x)
            feed = self._experts if number in graph.expert_layers else self._feed_forward
            x = self._rounded(x + feed(f"{name}.mlp", inner))
        x = self._norm("model.norm", x)
        name = "model.embed_tokens.weight" if graph.tied else "lm_head.weight"
        found = np.concatenate([x @ rows.T for _, rows in self._tensors.row_blocks(name)], -1)
        return self._summed(found, graph.hidden)

    def _rounded(self, x: Floats) -> Floats:
        if self._passes > 1:
            x[1:] *= 1 + self._ulp * self._random.uniform(-1, 1, x[1:].shape)
        return x

    def _summed(self, y: Floats, K: int) -> Floats:
        """Sums (passes, ...) of K products, rounded."""
        if self._passes > 1:
            size = np.sqrt(K) * FLOAT32 * np.sqrt((y[1:] * y[1:]).mean(-1, keepdims=True))
            y[1:] += size * self._random.uniform(-1, 1, y[1:].shape)
        return self._rounded(y)

    def _norm(self, name: str, x: Floats) -> Floats:
        weight = self._tensors.vector(f"{name}.weight")
        return self._rounded(x / np.sqrt((x * x).mean(-1, keepdims=True) + self._graph.eps) * weight)

    def _linear(self, name: str, x: Floats) -> Floats:
        weights = self._tensors.linear(name)
        if self._changed is not None:
            weights = self._changed(name, weights)
        return self._summed(parts.product_values(x, weights, weights.quantized), x.shape[-1])

    def _attention(self, name: str, x: Floats, cos: Floats, sin: Floats) -> Floats:
        graph, visible = self._graph, np.tri(x.shape[1], dtype=bool)
        D = graph.head_size
        q, k, v = (
            self._linear(f"{name}.{each}_proj", x).reshape(*x.shape[:2], heads, D)
            for each, heads in (("q", graph.heads), ("k", graph.key_heads), ("v", graph.key_heads))
        )
        if graph.head_norms:
            q, k = self._norm(f"{name}.q_norm", q), self._norm(f"{name}.k_norm", k)
        q, k = (
            self._rounded(each * cos[:, None] + parts.swapped(each, interleaved=graph.interleaved) * sin[:, None])
            for each in (q, k)
        )
        context = np.stack([parts.attention_values(*each, visible) for each in zip(q, k, v, strict=True)])
        context = self._rounded(context.reshape(*x.shape[:2], -1))
        if graph.sub_norms:
            context = self._norm(f"{name}.attn_sub_norm", context)
        return self._linear(f"{name}.o_proj", context)

    def _feed_forward(self, name: str, x: Floats) -> Floats:
        gate, up = self._linear(f"{name}.gate_proj", x), self._linear(f"{name}.up_proj", x)
        inner = self._rounded(parts.activated(gate, self._graph.activation) * up)
        if self._graph.sub_norms:
            inner = self._norm(f"{name}.ffn_sub_norm", inner)
        return self._linear(f"{name}.down_proj", inner)

    def _experts(self, name: str, x: Floats) -> Floats:
        graph = self._graph
        rows = x.reshape(-1, x.shape[-1])
        logits = self._linear(f"{name}.gate", x).reshape(len(rows), -1)
        chosen = np.argsort(-logits, -1, kind="stable")[:, : graph.used]
        shares = parts.gate_values(logits, chosen, graph.normed_gates)
        out = np.zeros_like(rows)
        for expert in np.unique(chosen):
            at, place = np.nonzero(chosen == expert)
            gate, up, down = (
                self._tensors.expert(f"{name}.experts", int(expert), f"{each}_proj") for each in ("gate", "up", "down")
            )
            later = at >= x.shape[1]  # rows of the passes behind the first
            inner = self._moved(
                parts.activated(rows[at] @ gate.T, graph.activation) * (rows[at] @ up.T), later, rows.shape[1]
            )
            out[at] += shares[at, place, None] * self._moved(inner @ down.T, later, inner.shape[1])
        return self._rounded(out.reshape(x.shape))

    def _moved(self, rows: Floats, later: NDArray[np.bool_], K: int) -> Floats:
        """As _summed for rows of several passes, of which those that are `later` move."""
        size = np.sqrt(K) * FLOAT32 * np.sqrt((rows * rows).mean(-1, keepdims=True)) + self._ulp * np.abs(rows)
        moved: Floats = rows + later[:, None] * size * self._random.uniform(-1, 1, rows.shape)
        return moved
