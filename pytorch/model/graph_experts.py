"""Judges the router and the experts of a block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tritmark.torch.converted_experts import ConvertedExperts
from tritmark.torch.model.arithmetic import arithmetic_of, arithmetic_of_experts
from tritmark.torch.model.capture import Pass
from tritmark.torch.model.findings import Findings
from tritmark.torch.model.reference import parts
from tritmark.torch.model.reference.architecture import Architecture
from tritmark.torch.model.reference.rounding import FLOAT32, Bounded, Rounding, gamma
from tritmark.torch.model.reference.tensors import Floats, Matrix, ModelTensors

_ROUTED = 3
"""What the router returns: logits, the weights of the chosen experts, and their numbers."""


class ExpertsWalk:
    """Judges blocks with experts."""

    def __init__(
        self,
        graph: Architecture,
        tensors: ModelTensors,
        modules: Mapping[str, Any],
        rounding: Rounding,
        findings: Findings,
    ) -> None:
        self._graph, self._tensors, self._modules = graph, tensors, modules
        self._r, self._findings = rounding, findings

    def judge(self, seen: Pass, number: int, x: torch.Tensor | None) -> torch.Tensor | None:
        """The output of the experts of a block whose norm returned x; None if it is not seen."""
        name, part = f"model.layers.{number}.mlp", f"layer {number}"
        router, experts = seen.one(f"{name}.gate"), seen.one(f"{name}.experts")
        for each, call in (("router", router), ("experts", experts)):
            if isinstance(call, str):
                self._findings.wrong(f"{part} {each}", call)
        if isinstance(router, str) or isinstance(experts, str):
            return None
        if not isinstance(router.out, tuple) or len(router.out) != _ROUTED:
            self._findings.unseen(f"{part} router", "it returns another tuple than logits, weights and numbers")
        else:
            self._findings.same(f"{part} router", router.given[0], x, "the output of the post-attention norm")
            self._router(f"{part} router", f"{name}.gate", router.given[0], router.out)
            _, weights, chosen = router.out
            for given, source in zip(experts.given, (x, chosen, weights), strict=False):
                self._findings.same(f"{part} experts", given, source, "those of the norm and the router")
        x, chosen, weights = experts.given[:3]
        rows = self._findings.floats(x)
        at = self._findings.of(chosen).cpu().numpy().reshape(len(rows), -1)
        gates = self._findings.floats(weights).reshape(at.shape)
        if isinstance(self._modules[f"{name}.experts"], ConvertedExperts):
            self._converted(seen, number, rows, at, gates)
        else:
            self._whole(number, rows, at, gates, experts.out)
        return experts.out

    def _router(self, part: str, name: str, given: torch.Tensor, out: tuple[torch.Tensor, ...]) -> None:
        logits, weights, chosen = out
        x, matrix = self._findings.floats(given), self._tensors.linear(name)
        how = arithmetic_of(self._modules[name], x.shape[-1], self._r.u, quantized=matrix.quantized)
        self._findings.close(part, logits, parts.product(x, matrix, how, self._r))
        found = self._findings.floats(logits)
        at = self._findings.of(chosen).cpu().numpy().reshape(len(found), -1)
        if at.shape[1] != self._graph.used:
            self._findings.wrong(part, f"chooses {at.shape[1]} experts in place of {self._graph.used}")
        elif parts.badly_chosen(found, at).any():
            self._findings.wrong(part, "chooses other experts than those of the largest logits")
        self._findings.close(part, weights, parts.gates(found, at, self._graph.normed_gates, self._r))

    def _matrix(self, number: int, expert: int, *names: str) -> Matrix:
        module = f"model.layers.{number}.mlp.experts"
        return Matrix(np.concatenate([self._tensors.expert(module, expert, name) for name in names]), False)

    def _whole(self, number: int, x: Floats, chosen: NDArray[Any], gates: Floats, out: torch.Tensor) -> None:
        """Experts of floats: only their sum is seen."""
        total, bound, magnitudes = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
        r = self._r
        for expert in np.unique(chosen):
            at, place = np.nonzero(chosen == expert)
            both = self._matrix(number, int(expert), "gate_proj", "up_proj")
            how = arithmetic_of(None, x.shape[-1], r.u, quantized=False)
            gate, up = _halves(parts.product(x[at], both, how, r))
            inner = parts.gated(gate, up, self._graph.activation, r)
            down = self._matrix(number, int(expert), "down_proj")
            how = arithmetic_of(None, down.values.shape[1], r.u, quantized=False)
            y = parts.product(inner.values, down, how, r)
            off = y.bound + inner.bound @ np.abs(down.values).T * (1 + how.term)
            share = gates[at, place, None]
            total[at] += share * y.values
            bound[at] += np.abs(share) * off
            magnitudes[at] += np.abs(share * y.values)
        bound += gamma(gates.shape[1] + 2, r.u) * (magnitudes + bound) + r.tiny
        off = np.abs(self._findings.floats(out) - total)
        self._named(f"layer {number} experts", off, bound, chosen)

    def _converted(self, seen: Pass, number: int, x: Floats, chosen: NDArray[Any], gates: Floats) -> None:
        """tritmark's experts: both products and the activation between them are seen."""
        name, part = f"model.layers.{number}.mlp.experts", f"layer {number} experts"
        first, second = seen.one(f"{name}.gate_up_proj"), seen.one(f"{name}.down_proj")
        if isinstance(first, str) or isinstance(second, str):
            self._findings.wrong(part, f"one of its products {first if isinstance(first, str) else second}")
            return
        made, inner = self._findings.floats(first.out), self._findings.floats(second.given[0])
        values, bound = np.zeros_like(made), np.ones_like(made)
        total, off = np.zeros_like(x), np.zeros_like(x)
        groups = {
            each: self._modules[f"{name}.{each}"].group_size is not None for each in ("gate_up_proj", "down_proj")
        }
        r = self._r
        for expert in np.unique(chosen):
            at, place = np.nonzero(chosen == expert)
            both = self._matrix(number, int(expert), "gate_proj", "up_proj")
            how = arithmetic_of_experts(x.shape[-1], groups["gate_up_proj"], r.u)
            values[at, place], bound[at, place] = parts.product(x[at], both, how, r)
            down = self._matrix(number, int(expert), "down_proj")
            how = arithmetic_of_experts(inner.shape[-1], groups["down_proj"], r.u)
            y = parts.product(inner[at, place], down, how, r)
            share = gates[at, place, None]
            total[at] += share * y.values
            off[at] += np.abs(share) * (y.bound + (gamma(gates.shape[1] + 1, FLOAT32) + r.u) * np.abs(y.values))
        self._named(f"{part} gate_up_proj", np.abs(made - values), bound, chosen)
        both_seen = parts.exact(made[..., : made.shape[-1] // 2]), parts.exact(made[..., made.shape[-1] // 2 :])
        self._findings.close(f"{part} activation", second.given[0], parts.gated(*both_seen, self._graph.activation, r))
        off += gamma(2, r.u) * np.abs(total) + r.tiny
        self._named(f"{part} down_proj", np.abs(self._findings.floats(second.out) - total), off, chosen)

    def _named(self, part: str, off: Floats, bound: Floats, chosen: NDArray[Any]) -> None:
        """Name the experts all of whose tokens depart."""
        each_token = np.any(off > bound, axis=-1)  # (T,), or (T, k)
        wrong = np.broadcast_to(np.reshape(each_token, (off.shape[0], -1)), chosen.shape)
        named = [int(each) for each in np.unique(chosen[wrong]) if wrong[chosen == each].all()]
        why = f"of experts {', '.join(map(str, named))}" if named else ""
        self._findings.ratios(part, off, bound, why)


def _halves(both: Bounded) -> tuple[Bounded, Bounded]:
    half = both.values.shape[-1] // 2
    return (
        Bounded(both.values[..., :half], both.bound[..., :half]),
        Bounded(both.values[..., half:], both.bound[..., half:]),
    )
