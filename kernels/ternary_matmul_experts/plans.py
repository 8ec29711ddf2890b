"""Plans of ternary_matmul_experts, see kernels/dispatch/plans.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.plans import RESTS_ON, ROOM, keep, native
from tritmark.kernels.native import cpu
from tritmark.kernels.weights.packed import PackedWeights, axes_of, product_with


def plan_experts(weights: PackedWeights, M: int, dtype: Any, variant: str | None, threads: int | None) -> None:
    """Make the plan for the next call of that kind."""
    key = native().product_key(M, dtype, variant, threads)
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if key is None or name not in {"float32", "int32"}:
        return
    if weights.plans is None:
        object.__setattr__(weights, "plans", native().ExpertsPlans(*RESTS_ON))

    def made() -> Any:
        axes = axes_of(weights, M)
        chosen = product_with(weights, "cpu", name, axes, weights.asked(variant), threads)
        if not cpu.own(chosen) or chosen.workspace(axes) > ROOM:
            return None
        packed = weights.packed_as(chosen.key.format)
        inputs = {
            "activations": np.empty((M, axes["K"]), np.int8),
            "weights": packed,
            "weight_scale": weights.expert_scales,
            "act_scale": np.empty(M, np.float32),
            "offsets": np.zeros(axes["E"] + 1, np.int32),
        }
        outputs = {"out": np.empty((M, axes["N"]), named_dtype(name))}
        launch = chosen.bind(inputs, outputs, axes, dispatch.threads_for(chosen.key, threads))
        return native().ExpertsPlan(launch, packed, *np.lib.array_utils.byte_bounds(weights.data))

    keep(weights.plans, key, made)
