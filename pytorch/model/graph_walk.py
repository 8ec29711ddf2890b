"""Walks through the parts of a graph, and compares each with the reference on the inputs that it got."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tritmark.harness.models import JudgedPart
from tritmark.torch.model.arithmetic import arithmetic_of
from tritmark.torch.model.capture import Pass, SeenAttention
from tritmark.torch.model.findings import Findings
from tritmark.torch.model.graph_experts import ExpertsWalk
from tritmark.torch.model.reference import parts
from tritmark.torch.model.reference.architecture import Architecture
from tritmark.torch.model.reference.rounding import Bounded, Rounding
from tritmark.torch.model.reference.tensors import Matrix, ModelTensors

_PROBED = 64
"""Positions at which the table of rope is probed, up to the last one of the model."""


class Walk:
    """Judges the parts of a model in the order in which they are computed. None stands for a tensor not seen."""

    def __init__(self, model: Any, graph: Architecture, tensors: ModelTensors, dtype: str) -> None:
        kind = torch.finfo(getattr(torch, dtype))
        self._graph, self._tensors = graph, tensors
        self._modules = dict(model.named_modules())
        # Numbers below the normal ones may be 0, except in float16.
        self._r = Rounding(kind.eps / 2, kind.tiny * kind.eps if kind.dtype == "float16" else kind.tiny)
        self._findings = Findings()
        self._experts = ExpertsWalk(graph, tensors, self._modules, self._r, self._findings)
        self._seen = Pass()
        self._start = 0
        self._keys: dict[int, SeenAttention] = {}
        self._visible = np.zeros((0, 0, 0), bool)
        self._probe_rope()

    def found(self) -> tuple[JudgedPart, ...]:
        """What was found, by part."""
        return self._findings.found()

    def judge(self, seen: Pass, tokens: torch.Tensor, start: int, mask: torch.Tensor | None) -> None:
        """Judge a pass over tokens (B, T), behind `start` earlier ones. `mask` (B, at least start + T)."""
        B, T = tokens.shape
        self._seen, self._start = seen, start
        real = torch.ones((B, start + T), dtype=torch.bool) if mask is None else mask[:, : start + T].bool().cpu()
        self._findings.rows = real[:, start:]
        self._visible = real.numpy()[:, None, :] & np.tri(T, start + T, start, dtype=bool)
        x = self._embedding(tokens)
        for number in range(self._graph.layers):
            x = self._block(number, x)
        x = self._norm("final norm", "model.norm", x, "the output of the last block")
        self._head(x)

    def _call(self, part: str, name: str, source: torch.Tensor | None, what: str) -> tuple[torch.Tensor | None, Any]:
        """The input and output of a module that is called once."""
        call = self._seen.one(name)
        if isinstance(call, str):
            self._findings.wrong(part, call)
            return None, None
        given = call.given[0] if call.given else None
        self._findings.same(part, given, source, what)
        return (given if isinstance(given, torch.Tensor) else None), call.out

    def _embedding(self, tokens: torch.Tensor) -> torch.Tensor | None:
        given, out = self._call("embedding", "model.embed_tokens", tokens, "the tokens")
        if given is not None:
            numbers = self._findings.of(given).cpu().numpy()
            rows = self._tensors.rows("model.embed_tokens.weight", numbers)
            self._findings.close("embedding", out, Bounded(rows, np.full_like(rows, self._r.tiny)))
        return out

    def _norm(self, part: str, name: str, source: torch.Tensor | None, what: str) -> torch.Tensor | None:
        given, out = self._call(part, name, source, what)
        if given is None:
            return None
        weight = self._tensors.vector(f"{name}.weight")
        if not self._findings.fits(part, given, len(weight)):
            return out
        found = self._findings
        found.close(part, out, parts.norm(found.floats(given), weight, self._graph.eps, self._r))
        self._probe_norm(part, name, given, weight)
        return out

    def _probe_norm(self, part: str, name: str, like: torch.Tensor, weight: Any) -> None:
        """A row whose mean square is eps: there eps matters, and in real rows it drowns in roundings."""
        signs = np.where(np.arange(len(weight)) % 2, -1.0, 1.0)
        row = torch.from_numpy(signs * np.sqrt(self._graph.eps)).to(like)
        probe = row.expand(1, *like.shape[1:]) if like.ndim == 4 else row.reshape(1, 1, -1)
        out = self._modules[name](probe).double().cpu().numpy()
        expected = parts.norm(probe.double().cpu().numpy(), weight, self._graph.eps, self._r)
        why = "differs for a row whose mean square is rms_norm_eps"
        self._findings.ratios(part, np.abs(out - expected.values), expected.bound, why)

    def _linear(self, part: str, name: str, source: torch.Tensor | None, what: str) -> torch.Tensor | None:
        given, out = self._call(part, name, source, what)
        if given is None:
            return None
        weights = self._tensors.linear(name)
        if not self._findings.fits(part, given, weights.values.shape[1]):
            return out
        how = arithmetic_of(self._modules[name], weights.values.shape[1], self._r.u, quantized=weights.quantized)
        self._findings.close(part, out, parts.product(self._findings.floats(given), weights, how, self._r))
        return out

    def _block(self, number: int, source: torch.Tensor | None) -> torch.Tensor | None:
        name, part = f"model.layers.{number}", f"layer {number}"
        what = "the embedding" if number == 0 else f"the output of layer {number - 1}"
        given, out = self._call(f"{part} input", name, source, what)
        out = out[0] if isinstance(out, tuple) else out
        x = self._norm(f"{part} input norm", f"{name}.input_layernorm", given, "the input of the layer")
        y = self._attention(number, x)
        norm = f"{name}.post_attention_layernorm"
        middle, _ = self._call(f"{part} post-attention norm", norm, None, "")
        self._sum(f"{part} attention residual", middle, given, y)
        inner = self._norm(f"{part} post-attention norm", norm, None, "")
        experts = number in self._graph.expert_layers
        y = self._experts.judge(self._seen, number, inner) if experts else self._feed_forward(number, inner)
        self._sum(f"{part} feed-forward residual", out, middle, y)
        return out

    def _sum(self, part: str, found: torch.Tensor | None, x: torch.Tensor | None, y: torch.Tensor | None) -> None:
        if found is not None and x is not None and y is not None:
            self._findings.close(
                part,
                found,
                parts.added(self._findings.floats(x), self._findings.floats(y), self._r),
            )

    def _attention(self, number: int, x: torch.Tensor | None) -> torch.Tensor | None:
        name, part = f"model.layers.{number}.self_attn", f"layer {number}"
        q, k, v = (
            self._linear(f"{part} {each}_proj", f"{name}.{each}_proj", x, "the output of the input norm")
            for each in ("q", "k", "v")
        )
        heads = self._graph.heads, self._graph.key_heads
        q, k = (
            each if each is None else each.reshape(*each.shape[:2], n, -1)
            for each, n in zip((q, k), heads, strict=True)
        )
        if self._graph.head_norms:
            q = self._norm(f"{part} q_norm", f"{name}.q_norm", q, "the output of q_proj")
            k = self._norm(f"{part} k_norm", f"{name}.k_norm", k, "the output of k_proj")
        seen = self._seen.attention.get(number, [])
        context: torch.Tensor | None = None
        if len(seen) != 1:
            why = f"transformers' attention function is called {len(seen)} times"
            for each in ("rope", "attention"):
                self._findings.unseen(f"{part} {each}", why)
        else:
            self._rope(number, q, k, seen[0])
            self._kept(number, v, seen[0])
            self._shares(number, seen[0])
            context = seen[0].out
        what = "the output of the attention"
        if self._graph.sub_norms:
            context = self._norm(f"{part} attention sub-norm", f"{name}.attn_sub_norm", context, what)
            what = "the output of the sub-norm"
        return self._linear(f"{part} o_proj", f"{name}.o_proj", context, what)

    def _rope(self, number: int, q: torch.Tensor | None, k: torch.Tensor | None, seen: SeenAttention) -> None:
        part, found = f"layer {number} rope", self._findings
        call, rotary = self._seen.one(f"model.layers.{number}.self_attn"), self._seen.one("model.rotary_emb")
        table = None if isinstance(call, str) else call.named.get("position_embeddings")
        if table is None or isinstance(rotary, str):
            found.unseen(part, "its table of cosines and sines is not seen")
            return
        B, T = seen.q.shape[0], seen.q.shape[2]
        positions = rotary.given[1].expand(B, T)
        self._positions(positions)
        expected = parts.rope_table(found.floats(positions), self._graph.theta, self._graph.head_size, self._r)
        cos, sin = (each.expand(B, T, -1) for each in table)
        for each, values in zip((cos, sin), expected, strict=True):
            found.close(part, each, values)
        cos, sin = (found.floats(each)[:, None] for each in (cos, sin))
        keys = seen.k[:, :, self._start : self._start + T]
        for before, after in ((q, seen.q), (k, keys)):
            if before is not None:
                found.close(part, after.transpose(1, 2), parts.turned(found.floats(before), cos, sin, self._r))

    def _positions(self, positions: torch.Tensor) -> None:
        """Only differences of positions matter."""
        for each, real in zip(positions.cpu(), self._findings.rows, strict=True):
            if bool((each[real].diff() != 1).any()):
                self._findings.wrong("positions", "do not increase by one from token to token")

    def _probe_rope(self) -> None:
        module = self._modules.get("model.rotary_emb")
        if module is None:
            return
        positions = torch.linspace(0, self._graph.positions - 1, _PROBED).round().long()[None]
        like = self._modules["model.embed_tokens"].weight
        table = module(like[None, :1], positions.to(like.device))
        expected = parts.rope_table(positions.double().numpy(), self._graph.theta, self._graph.head_size, self._r)
        for each, values in zip(table, expected, strict=True):
            off = np.abs(each.double().cpu().numpy() - values.values)
            self._findings.ratios("rope table", off, values.bound)

    def _kept(self, number: int, v: torch.Tensor | None, seen: SeenAttention) -> None:
        """Values reach the attention as v_proj returns them, and keys and values of earlier tokens stay."""
        T, start = seen.q.shape[2], self._start
        part = f"layer {number} cache"
        if v is not None:
            self._findings.same(part, seen.v[:, :, start : start + T].transpose(1, 2), v, "the output of v_proj")
        before = self._keys.get(number)
        if before is not None:
            for now, earlier in ((seen.k, before.k), (seen.v, before.v)):
                if not torch.equal(now[:, :, :start], earlier[:, :, :start]):
                    self._findings.wrong(part, "has other keys or values than earlier passes wrote")
        self._keys[number] = seen

    def _shares(self, number: int, seen: SeenAttention) -> None:
        end = self._start + seen.q.shape[2]
        q, k, v = (
            each.double().cpu().numpy().transpose(0, 2, 1, 3)
            for each in (seen.q, seen.k[:, :, :end], seen.v[:, :, :end])
        )
        rows = self._findings.rows.numpy()
        made = [parts.attention(q[b, rows[b]], k[b], v[b], self._visible[b, rows[b]], self._r) for b in range(len(q))]
        expected = Bounded(*(np.concatenate(each) for each in zip(*made, strict=True)))
        self._findings.close(f"layer {number} attention", seen.out, expected)

    def _feed_forward(self, number: int, x: torch.Tensor | None) -> torch.Tensor | None:
        name, part = f"model.layers.{number}.mlp", f"layer {number}"
        what = "the output of the post-attention norm"
        gate = self._linear(f"{part} gate_proj", f"{name}.gate_proj", x, what)
        up = self._linear(f"{part} up_proj", f"{name}.up_proj", x, what)
        norm = self._graph.sub_norms
        next_part, next_name = ("feed-forward sub-norm", "ffn_sub_norm") if norm else ("down_proj", "down_proj")
        inner, _ = self._call(f"{part} {next_part}", f"{name}.{next_name}", None, "")
        if gate is not None and up is not None and inner is not None:
            values, factors = (parts.exact(self._findings.floats(each)) for each in (gate, up))
            expected = parts.gated(values, factors, self._graph.activation, self._r)
            self._findings.close(f"{part} activation", inner, expected)
        if norm:
            inner = self._norm(f"{part} {next_part}", f"{name}.{next_name}", inner, "")
        return self._linear(f"{part} down_proj", f"{name}.down_proj", inner, "the output of the part before")

    def _head(self, source: torch.Tensor | None) -> None:
        given, out = self._call("head", "lm_head", source, "the output of the final norm")
        if given is None:
            return
        logits = self._seen.logits
        self._findings.same("head", logits, out.to(logits.dtype), "the output of the head")
        x = self._findings.floats(given)
        how = arithmetic_of(self._modules["lm_head"], x.shape[-1], self._r.u, quantized=False)
        name = "model.embed_tokens.weight" if self._graph.tied else "lm_head.weight"
        for rows, values in self._tensors.row_blocks(name):
            self._findings.close("head", out[..., rows], parts.product(x, Matrix(values, False), how, self._r))
