"""The public function ternary_matmul_experts."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import unify
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.monitor import hook
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import KernelKey, Receipt
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.offload import FinishedCall
from tritmark.kernels.public.foreign import takes_any_array
from tritmark.kernels.ternary_matmul.api import checked_act_scale, checked_dtype
from tritmark.kernels.ternary_matmul_experts.offsets import check
from tritmark.kernels.ternary_matmul_experts.plans import plan_experts
from tritmark.kernels.ternary_matmul_experts.spec import OP
from tritmark.kernels.weights.packed import PackedWeights, product_with

__all__ = ["ternary_matmul_experts"]


@takes_any_array
def ternary_matmul_experts(
    activations: npt.NDArray[np.int8],
    weights: PackedWeights,
    offsets: npt.NDArray[np.int32],
    *,
    act_scale: npt.ArrayLike = 1.0,
    dtype: npt.DTypeLike | str = "float32",
    out: npt.NDArray[Any] | None = None,
    variant: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    on_error: str = "raise",
) -> npt.NDArray[Any]:
    """Each row of activations times the weights of its expert, in one call for all experts (W2A8).

    `activations` is int8 (M, K), rows contiguous and sorted by expert (the matrix may be strided). `weights` has the
    shape (E, N, K): pack_weights of codes with three axes makes it. `offsets` is int32 (E + 1,): rows offsets[e] to
    offsets[e + 1] belong to expert e. It ascends from 0 to M. Experts may have no rows; their weights are not read.

    Row m of the result has the same bits as ternary_matmul of that row and the matrix of its expert. `act_scale`,
    `dtype`, `out`, `variant` and `threads` are as there; so are repacked weights, and the bound of weights with a scale
    for each group. Returns (M, N).

    `device` is "cpu", "cuda" or a package's (weights are copied there once and kept). Source: specification, 3.1, for
    layers with experts (arXiv:2101.03961).

    Raises InvalidArgumentError for arguments outside the contract, NoCompatibleKernelError if no kernel fits,
    DeviceError if a GPU fails; `out` is then untouched. `on_error="recover"`: see docs/guides/recover.md.
    """
    asked: dict[str, Any] = {"act_scale": act_scale, "dtype": dtype, "out": out, "variant": variant}
    asked |= {"threads": threads, "device": device}
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        given: dict[str, Any] = {"activations": activations, "weights": weights, "offsets": offsets}
        return cast("npt.NDArray[Any]", call(OP.name, on_error, **given, **asked))
    planned = device == "cpu" and type(weights) is PackedWeights and hook.active is None
    if planned and weights.plans is not None:
        found = weights.plans.run(dispatch.registry(), activations, act_scale, dtype, out, variant, threads, offsets)
        if found is not None:
            return cast("npt.NDArray[Any]", found)
    result, _ = _computed(activations, weights, offsets, **asked)
    if planned and type(activations) is np.ndarray:
        plan_experts(weights, activations.shape[0], dtype, variant, threads)
    return result


def with_receipt(
    activations: npt.NDArray[np.int8], weights: PackedWeights, offsets: npt.NDArray[np.int32], **asked: Any
) -> tuple[npt.NDArray[Any], Receipt]:
    """As ternary_matmul_experts, and the receipt."""
    result, ran = _computed(activations, weights, offsets, **asked)
    return result, ran.receipt()


def _computed(
    activations: npt.NDArray[np.int8],
    weights: PackedWeights,
    offsets: npt.NDArray[np.int32],
    *,
    act_scale: npt.ArrayLike = 1.0,
    dtype: npt.DTypeLike | str = "float32",
    out: npt.NDArray[Any] | None = None,
    variant: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
) -> tuple[npt.NDArray[Any], FinishedCall]:
    if not isinstance(weights, PackedWeights) or len(weights.shape) != 3:
        one = isinstance(weights, PackedWeights)
        found = f"of shape {weights.shape}" if one else f"a {type(weights).__name__}"
        legal = "PackedWeights of shape (E, N, K), as pack_weights makes them of codes (E, N, K)"
        raise InvalidArgumentError(op=OP.name, argument="weights", found=found, legal=legal)
    known = isinstance(activations, np.ndarray | ResidentArray)
    scale = act_scale if isinstance(act_scale, ResidentArray) else checked_act_scale(OP.name, act_scale)
    if known and not scale.shape:
        scale = np.full(activations.shape[:1], scale)
    E, N, K = weights.shape
    inputs = {
        "activations": activations,
        "weight_scale": weights.expert_scales,
        "act_scale": scale,
        "offsets": offsets,
    }
    key = KernelKey(device, OP.name, weights.format, checked_dtype(OP.name, dtype, weights.format, device))
    axes = unify(OP, inputs, {"E": E, "N": N, "K": K})
    if isinstance(offsets, np.ndarray):  # kernels check those on a device
        check(OP.name, offsets, axes["M"])
    outputs = dispatch.outputs_for(OP, axes, key, {"out": out}, {**inputs, "weights": weights.data})
    arrays = activations, scale, offsets, outputs["out"], weights.data
    chosen = product_with(weights, device, key.dtype, axes, weights.asked(variant), threads, arrays=arrays)
    encoded = {**inputs, "weights": weights.packed_as(chosen.key.weight_format, device)}
    count, note = dispatch.threads_for(chosen.key, threads), weights.repacked_note(chosen)
    ran = dispatch.run(OP, chosen, encoded, outputs, axes, count, note=note)
    return outputs["out"] if out is None else out, ran
