"""Plans of ternary_matmul, see kernels/dispatch/plans.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Axes, Launch, Variant
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.plans import RESTS_ON, ROOM, keep, native, remember
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.cpu import kept
from tritmark.kernels.weights.packed import PackedWeights, axes_of, product_with


def plan_product(weights: PackedWeights, M: int, dtype: Any, variant: str | None, threads: int | None) -> None:
    """Make the plan for the next product of that kind."""
    key = native().product_key(M, dtype, variant, threads)
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if key is None or name not in {"float32", "int32"}:
        return
    if weights.plans is None:
        object.__setattr__(weights, "plans", native().ProductPlans(*RESTS_ON))

    def made() -> Any:
        axes = axes_of(weights, M)
        chosen = product_with(weights, "cpu", name, axes, weights.asked(variant), threads)
        if not plannable(chosen, axes):
            return None
        remember(weights.planned, key, chosen, axes, threads)
        launch, room = product_launch(chosen, weights, axes, threads), room_of(chosen, axes) > 0
        return native().ProductPlan(
            launch, bytes_read(chosen, weights), *np.lib.array_utils.byte_bounds(weights.data), room
        )

    keep(weights.plans, key, made)


def plannable(chosen: Variant, axes: Axes) -> bool:
    """Whether to make a plan of that product. A plan keeps the product's workspace and, with one, an output."""
    room = room_of(chosen, axes)
    return cpu.own(chosen) and (room == 0 or room + 4 * axes["M"] * axes["N"] <= ROOM)


def room_of(chosen: Variant, axes: Axes) -> int:
    """Bytes of the workspace that a launch keeps; only one call at a time may use it."""
    return kept(chosen.key.format, axes) if cpu.own(chosen) else chosen.workspace(axes)


def bytes_read(chosen: Variant, weights: PackedWeights) -> npt.NDArray[np.uint8]:
    """The packed weights in the format that the variant reads."""
    found: npt.NDArray[np.uint8] = weights.packed_as(chosen.key.format)
    return found


def product_launch(chosen: Variant, weights: PackedWeights, axes: Axes, threads: int | None) -> Launch:
    """A launch bound to packed weights, see launch_of."""
    return launch_of(chosen, bytes_read(chosen, weights), weights.weight_scale, axes, threads)


def launch_of(chosen: Variant, weights: npt.NDArray[np.uint8], scale: Any, axes: Axes, threads: int | None) -> Launch:
    """A launch bound to these weights, and to other arrays without content: a plan passes the addresses of others."""
    M, N, K = axes["M"], axes["N"], axes["K"]
    inputs = {
        "activations": np.empty((M, K), np.int8),
        "weights": weights,
        "weight_scale": scale,
        "act_scale": np.empty(M, np.float32),
    }
    outputs = {"out": np.empty((M, N), named_dtype(chosen.key.dtype))}
    return chosen.bind(inputs, outputs, axes, dispatch.threads_for(chosen.key, threads))
