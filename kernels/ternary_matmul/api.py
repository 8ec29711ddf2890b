"""The public function ternary_matmul."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import dtype_name, unify
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.monitor import hook, receipts
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import Arrays, Axes, KernelKey, Receipt, Requirement, Variant
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.offload import FinishedCall
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.public.foreign import AUTO, with_plans
from tritmark.kernels.ternary_matmul import auto_device, plans
from tritmark.kernels.ternary_matmul.spec import OP, dtypes
from tritmark.kernels.weights.packed import PackedWeights, matrix_of, product_with

__all__ = ["ternary_matmul"]


@with_plans
def ternary_matmul(
    activations: npt.NDArray[np.int8],
    weights: PackedWeights,
    *,
    act_scale: npt.ArrayLike = 1.0,
    dtype: npt.DTypeLike | str = "float32",
    out: npt.NDArray[Any] | None = None,
    variant: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    on_error: str = "raise",
) -> npt.NDArray[Any]:
    """activations @ weights.T, exact in int32 (W2A8), then times weight scale / activation scale.

    `activations` is int8 (M, K) or (K,), rows contiguous (the matrix may be strided). `weights` comes from
    pack_weights; if no kernel computes from its format, it is repacked once into one with the same weights, and the
    receipt reports it. `act_scale`, the factor that activation_quantize returns, is float32, one number or one for each
    row, finite and above zero. `dtype` is "float32", "bfloat16", on CUDA also "float16", or "int32" (the accumulators,
    unscaled). Returns (M, N) or (N,); `out`, if given, has that shape and dtype.

    If groups of a row's weights have scales (tq2_0, tq1_0, q2_0), the int32 sum of each group is exact, and the scaled
    sum of the groups is within a bound that is known beforehand (kernels/ternary_matmul/reference.py). Such weights
    have no "int32" product. On the CPU they are repacked once into tiles (docs/kernels/tile64_grouped.md), except for
    a named variant and for the requirements "memory" and "exactness".

    `device` is "cpu", "cuda" or a package's (weights are copied there once and kept), or "auto": see docs/python.md.

    Raises InvalidArgumentError for arguments outside the contract, NoCompatibleKernelError if no kernel fits (unknown
    kinds of scales, a missing device, an instruction set that this CPU lacks), DeviceError if a GPU fails; `out` is
    then untouched. `on_error="recover"`: see docs/guides/recover.md.
    """
    watch = hook.active
    thread: Any = None
    planned = device == "cpu" and type(weights) is PackedWeights
    if watch is not None:
        thread, planned = watch.begin(), planned and not receipts.collects()
    if not planned and device == AUTO:
        where = auto_device.product(activations, weights, dtype, threads, variant, OP.name)
        told: dict[str, Any] = {"act_scale": act_scale, "dtype": dtype, "out": out, "threads": threads}
        return where.run(ternary_matmul, activations, weights, on_error=on_error, **told)
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        given: dict[str, Any] = {"activations": activations, "weights": weights, "act_scale": act_scale, "dtype": dtype}
        given |= {"variant": variant, "threads": threads, "device": device}
        given |= {"op": OP.name, "on_error": on_error, "out": out}
        recovered = call(**given) if thread is None or watch is None else watch.call(thread, OP.name, call, (), given)
        return cast("npt.NDArray[Any]", recovered)
    if planned and weights.plans is not None:
        found = weights.plans.run(dispatch.registry(), activations, act_scale, dtype, out, variant, threads)
        if found is not None:
            if thread is not None and watch is not None:
                M = activations.shape[0] if activations.ndim == 2 else 1
                watch.end(thread, OP.name, weights.planned.get((M, dtype, variant, threads)))
            return cast("npt.NDArray[Any]", found)
    asked: dict[str, Any] = {"act_scale": act_scale, "dtype": dtype, "out": out, "variant": variant}
    asked |= {"threads": threads, "device": device}
    if thread is None or watch is None:
        result, _ = _computed(activations, weights, **asked)
    else:
        result, _ = watch.call(thread, OP.name, _computed, (activations, weights), asked)
    if planned and type(activations) is np.ndarray:
        plans.plan_product(weights, math.prod(activations.shape[:-1]), dtype, variant, threads)
    return result


def with_receipt(
    activations: npt.NDArray[np.int8], weights: PackedWeights, **asked: Any
) -> tuple[npt.NDArray[Any], Receipt]:
    """As ternary_matmul, and for a `requirement`, and the receipt."""
    result, ran = _computed(activations, weights, **asked)
    return result, ran.receipt()


def _computed(
    activations: npt.NDArray[np.int8], weights: PackedWeights, *, threads: int | None = None, **asked: Any
) -> tuple[npt.NDArray[Any], FinishedCall]:
    made = prepare(activations, weights, threads=threads, **asked)
    count = dispatch.threads_for(made.variant.key, threads)
    ran = dispatch.run(OP, made.variant, made.inputs, made.outputs, made.axes, count, note=made.note)
    return made.result, ran


@dataclass(frozen=True, slots=True)
class PreparedTernaryProduct:
    """A product whose arguments are checked and whose kernel is chosen."""

    variant: Variant
    inputs: Arrays
    outputs: dict[str, Any]
    axes: Axes
    result: Any
    """What the public function returns: the output, or a view of it."""
    note: str
    """Of its receipt."""


def prepare(
    activations: npt.NDArray[np.int8],
    weights: PackedWeights,
    *,
    act_scale: npt.ArrayLike = 1.0,
    dtype: npt.DTypeLike | str = "float32",
    out: npt.NDArray[Any] | None = None,
    variant: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    requirement: Requirement = Requirement.LATENCY,
) -> PreparedTernaryProduct:
    """Everything before the kernel runs. Raises as ternary_matmul."""
    if not isinstance(weights, PackedWeights):
        raise InvalidArgumentError(
            op=OP.name,
            argument="weights",
            found=f"a {type(weights).__name__}",
            legal="PackedWeights, as pack_weights makes them",
        )
    known = isinstance(activations, np.ndarray | ResidentArray)
    single = known and activations.ndim == 1
    rows: Any = activations.reshape(1, -1) if single else activations
    scale = act_scale if isinstance(act_scale, ResidentArray) else checked_act_scale(OP.name, act_scale)
    N, K = matrix_of(OP.name, weights)
    if known and not scale.shape:
        scale = np.full(rows.shape[:1], scale)
    inputs = {"activations": rows, "weight_scale": weights.weight_scale, "act_scale": scale}
    key = KernelKey(device, OP.name, weights.format, checked_dtype(OP.name, dtype, weights.format, device))
    axes = unify(OP, inputs, {"N": N, "K": K})
    given = out.reshape(1, -1) if single and isinstance(out, np.ndarray | ResidentArray) else out
    outputs = dispatch.outputs_for(OP, axes, key, {"out": given}, {**inputs, "weights": weights.data})
    arrays = rows, scale, outputs["out"], weights.data
    chosen = product_with(weights, device, key.dtype, axes, weights.asked(variant), threads, requirement, arrays)
    encoded = {**inputs, "weights": weights.packed_as(chosen.key.weight_format, device)}
    result = outputs["out"]
    if out is not None:
        result = out
    elif single:
        result = result.reshape(-1)
    return PreparedTernaryProduct(chosen, encoded, outputs, axes, result, weights.repacked_note(chosen))


def checked_act_scale(op: str, act_scale: Any) -> npt.NDArray[np.float32]:
    """The scale of activations as float32. Raises InvalidArgumentError for what has no such form."""
    try:
        return np.asarray(act_scale, dtype=np.float32)
    except (TypeError, ValueError):
        legal = "float32, one number or one for each row"
        raise InvalidArgumentError(op=op, argument="act_scale", found=repr(act_scale), legal=legal) from None


def checked_dtype(op: str, dtype: Any, format: str, device: str) -> str:
    """The name of an output dtype of products with weights of that format on that device. Raises InvalidArgumentError
    for others."""
    name, legal = dtype_name(op, dtype), dtypes(format, device)
    if name not in legal:
        found = f"{name!r} for {format}, which has {FORMATS[format].scales}" if name == "int32" else repr(name)
        raise InvalidArgumentError(op=op, argument="dtype", found=found, legal=", ".join(legal))
    return name
