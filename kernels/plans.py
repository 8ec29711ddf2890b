"""Plans of the public functions' calls with NumPy arrays on the CPU, see cython_ext/host_plan.pyx.

A call goes the long way first: whatever depends on more than the arrays that a plan looks at is checked there, by the
contract. Where it raised nothing, and the kernels that were chosen are this package's, a plan is made, which the next
call of the same kind finds, as long as the registry (which knows when measured choices are read anew),
TRITMARK_FORCE_ISA and TRITMARK_TUNED are what they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness import tuned
from tritmark.harness.dtypes import named_dtype
from tritmark.harness.registry import Registry
from tritmark.harness.spec import Axes, KernelKey, Launch, Receipt, Requirement, Variant
from tritmark.kernels import cpu, dispatch, prefetch
from tritmark.kernels.activation_quantize.spec import KEY as QUANTIZE_KEY
from tritmark.kernels.activation_quantize.spec import key_for
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.packed import PackedWeights, product_with
from tritmark.kernels.ternary_matmul.cpu import kept
from tritmark.kernels.ternary_matmul.spec import OP as TERNARY_MATMUL

ROOM = 1 << 20
"""Bytes that a plan keeps of memory that a call works in, at most: calls that take more take milliseconds, and so go
the long way."""
_RESTS_ON = (cpu.FORCE, tuned.SELECT)
"""Environment variables that the choice of a kernel rests on."""


def native() -> Any:
    """The boundary."""
    return cpu.native("host_plan")


@cache
def quantize_plans() -> Any:
    """Those of activation_quantize: all there are."""
    return native().QuantizePlans(*_RESTS_ON)


def linear_plans() -> Any:
    """None yet, for one layer."""
    return native().LinearPlans(*_RESTS_ON)


def address_plans() -> Any:
    """None yet, of layers whose arrays are another library's: for get, and plan_addresses."""
    return native().AddressPlans(*_RESTS_ON)


def widened(x: npt.NDArray[Any]) -> npt.NDArray[np.float32] | None:
    """C-contiguous values of float16 or bfloat16 in float32, which every kernel takes them in, for a call that finds a
    plan so; None for others, and where the copy takes more than ROOM. By turns on a Zen 3, outside of this project,
    bfloat16 through a layer of 2560 x 2560 gains 17 % at ROOM and 2 at 2.5 times as much."""
    if x.dtype.itemsize != 2 or not x.flags.c_contiguous or 2 * x.nbytes > ROOM:
        return None
    if x.dtype == named_dtype("bfloat16"):  # its bits are the first of float32's, and no NaN is converted
        return x.astype(np.float32)
    if x.dtype != named_dtype("float16"):
        return None
    with np.errstate(invalid="ignore"):
        return x.astype(np.float32)


def plan_quantize(M: int, K: int, variant: str | None, threads: int | None) -> None:
    """Have the next call of that kind find a plan."""
    key = native().quantize_key(M, K, variant, threads)
    if key is not None:

        def made() -> Any:
            axes = {"M": M, "K": K}
            chosen = dispatch.select(QUANTIZE_KEY, axes, variant, threads)
            return native().QuantizePlan(_quantize(chosen, axes, threads)) if cpu.own(chosen) else None

        _keep(quantize_plans(), key, made)


def plan_product(weights: PackedWeights, M: int, dtype: Any, variant: str | None, threads: int | None) -> None:
    """Have the next product of that kind find a plan."""
    key = native().product_key(M, dtype, variant, threads)
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if key is None or name not in {"float32", "int32"}:
        return
    if weights.plans is None:
        object.__setattr__(weights, "plans", native().ProductPlans(*_RESTS_ON))

    def made() -> Any:
        axes = _axes(weights, M)
        chosen = product_with(weights, "cpu", name, axes, weights.asked(variant), threads)
        if not _kept(chosen, axes):
            return None
        launch, room = _product(chosen, weights, axes, threads), _room(chosen, axes) > 0
        return native().ProductPlan(launch, _read(chosen, weights), *np.lib.array_utils.byte_bounds(weights.data), room)

    _keep(weights.plans, key, made)


def plan_linear(
    plans: Any,
    weights: PackedWeights,
    bias: npt.NDArray[np.float32] | None,
    M: int,
    variant: str | None,
    threads: int | None,
    requirement: Requirement,
) -> None:
    """Have the layer's next call with M rows find a plan."""

    def made() -> Any:
        axes = _axes(weights, M)
        asked = (threads, requirement)
        product = product_with(weights, "cpu", "float32", axes, weights.asked(variant), *asked)
        quantize = dispatch.select(QUANTIZE_KEY, {"M": M, "K": axes["K"]}, None, *asked)
        if not (_kept(product, axes) and cpu.own(quantize)) or not _plain(bias):
            return None
        launches = _quantize(quantize, axes, threads), _product(product, weights, axes, threads)
        call, room = native().LinearCall(*launches, bias), _room(product, axes) > 0
        return native().LinearPlan(call, product, _read(product, weights), bias, room)

    _keep(plans, M, made)


def plan_addresses(
    plans: Any, key: Any, format: str, dtypes: tuple[str, str], axes: Axes, threads: int, given: tuple[Any, ...]
) -> None:
    """Have the next call with that key find a plan of layers without bias, whose weights have one scale and are in that
    format: its `run_at`, for the addresses of rows, weights and output, whose first and last have these dtypes, and the
    scale of the weights, and then what is told here. None is made where the product works in memory of its own."""
    rows, output = dtypes

    def made() -> Any:
        product = dispatch.select(KernelKey("cpu", TERNARY_MATMUL.name, format, output), axes, None, threads)
        quantize = dispatch.select(key_for(rows, "cpu"), {"M": axes["M"], "K": axes["K"]}, None, threads)
        if not (cpu.own(product) and cpu.own(quantize)) or _room(product, axes):
            return None
        data = np.empty(math.prod(FORMATS[format].packed_shape((axes["N"], axes["K"]))), np.uint8)
        launches = _quantize(quantize, axes, threads, rows), _bound(product, data, np.float32(1), axes, threads)
        plan = native().LinearPlan(native().LinearCall(*launches), product, None, None, False)
        return plan.run_at, *given

    _keep(plans, key, made)


def receipt_of(plan: Any, weights: PackedWeights) -> Receipt:
    """That of the last call that a layer's plan ran."""
    return Receipt(
        kernel=plan.variant.id,
        ran=isa_of(plan.rank),
        runs=plan.runs,
        threads=plan.threads_used,
        note=weights.repacked_note(plan.variant),
        tuned="; ".join(filter(None, (plan.variant.tuned, prefetch.tuned_now(plan.variant.key.format)))),
    )


def isa_of(rank: int) -> str:
    """The instruction set of that rank; "" for none."""
    return next((isa.name for isa in cpu.ISAS.values() if isa.rank == rank), "")


def _keep(plans: Any, key: Any, made: Callable[[], Any]) -> None:
    registry: Registry = dispatch.registry()
    plans.current(registry)  # drops what is out of date
    if key not in plans:
        plan = made()
        if plan is not None:
            plans.keep(registry, key, plan)


def _axes(weights: PackedWeights, M: int) -> dict[str, int]:
    return {"M": M, "N": weights.shape[0], "K": weights.shape[1]}


def _kept(chosen: Variant, axes: Axes) -> bool:
    """Whether a plan of that product is made: where it works in memory, it keeps that, and an output."""
    room = _room(chosen, axes)
    return cpu.own(chosen) and (room == 0 or room + 4 * axes["M"] * axes["N"] <= ROOM)


def _room(chosen: Variant, axes: Axes) -> int:
    """Bytes that a launch keeps to work in, so that one call at a time may have it."""
    return kept(chosen.key.format, axes) if cpu.own(chosen) else chosen.workspace(axes)


def _plain(bias: npt.NDArray[np.float32] | None) -> bool:
    return bias is None or (bias.flags.c_contiguous and bias.flags.aligned)


def _read(chosen: Variant, weights: PackedWeights) -> npt.NDArray[np.uint8]:
    found: npt.NDArray[np.uint8] = weights.packed_as(chosen.key.format)
    return found


def _quantize(chosen: Variant, axes: Axes, threads: int | None, dtype: str = "float32") -> Launch:
    """Bound to arrays of no content: a plan brings the addresses of others."""
    M, K = axes["M"], axes["K"]
    outputs = {"q": np.empty((M, K), np.int8), "scale": np.empty(M, np.float32), "sum": np.empty(M, np.int32)}
    return chosen.bind(
        {"x": np.empty((M, K), named_dtype(dtype))}, outputs, axes, dispatch.threads_for(chosen.key, threads)
    )


def _product(chosen: Variant, weights: PackedWeights, axes: Axes, threads: int | None) -> Launch:
    """The same."""
    return _bound(chosen, _read(chosen, weights), weights.weight_scale, axes, threads)


def _bound(chosen: Variant, weights: npt.NDArray[np.uint8], scale: Any, axes: Axes, threads: int | None) -> Launch:
    M, N, K = axes["M"], axes["N"], axes["K"]
    inputs = {
        "activations": np.empty((M, K), np.int8),
        "weights": weights,
        "weight_scale": scale,
        "act_scale": np.empty(M, np.float32),
    }
    outputs = {"out": np.empty((M, N), named_dtype(chosen.key.dtype))}
    return chosen.bind(inputs, outputs, axes, dispatch.threads_for(chosen.key, threads))
