"""Plans of the public functions' calls with NumPy arrays on the CPU, see cython_ext/host_plan.pyx.

The first call takes the long path, where the contract checks everything that a plan does not check itself. If it raised
nothing and the chosen kernels are this package's, a plan is made. The next call of the same kind uses it, until the
registry (and with it the measured choices), TRITMARK_FORCE_ISA or TRITMARK_TUNED changes.
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
from tritmark.harness.monitor.hook import KernelRan
from tritmark.harness.registry import Registry
from tritmark.harness.spec import Axes, KernelKey, Launch, Receipt, Requirement, Variant
from tritmark.kernels.activation_quantize.spec import KEY as QUANTIZE_KEY
from tritmark.kernels.activation_quantize.spec import key_for
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.native import cpu, prefetch
from tritmark.kernels.ternary_matmul.cpu import kept
from tritmark.kernels.ternary_matmul.spec import OP as TERNARY_MATMUL
from tritmark.kernels.weights.packed import PackedWeights, product_with

ROOM = 1 << 20
"""Limit in bytes of the workspace that a plan keeps. Calls with a larger one take milliseconds, and use the long
path."""
_RESTS_ON = (cpu.FORCE, tuned.SELECT)
"""Environment variables on which the choice of a kernel depends."""
PLANNED_QUANTIZATIONS: dict[Any, KernelRan] = {}
"""The kernels of the plans of activation_quantize, by their keys."""
_MOST_PLANNED = 8192


def native() -> Any:
    """The boundary."""
    return cpu.native("host_plan")


@cache
def quantize_plans() -> Any:
    """The plans of activation_quantize."""
    return native().QuantizePlans(*_RESTS_ON)


def linear_plans() -> Any:
    """An empty set of plans, for one layer."""
    return native().LinearPlans(*_RESTS_ON)


def address_plans() -> Any:
    """An empty set of plans, for layers with arrays of another library: for get and plan_addresses."""
    return native().AddressPlans(*_RESTS_ON)


def widened(x: npt.NDArray[Any]) -> npt.NDArray[np.float32] | None:
    """C-contiguous float16 or bfloat16 values as float32, which every kernel takes, so that a call finds its plan. None
    for other arrays, and if the copy takes more than ROOM: above it the gain becomes small."""
    if x.dtype.itemsize != 2 or not x.flags.c_contiguous or 2 * x.nbytes > ROOM:
        return None
    if x.dtype == named_dtype("bfloat16"):  # its bits are the upper half of float32's, and no NaN is converted
        return x.astype(np.float32)
    if x.dtype != named_dtype("float16"):
        return None
    with np.errstate(invalid="ignore"):
        return x.astype(np.float32)


def plan_quantize(M: int, K: int, variant: str | None, threads: int | None) -> None:
    """Make the plan for the next call of that kind."""
    key = native().quantize_key(M, K, variant, threads)
    if key is not None:

        def made() -> Any:
            axes = {"M": M, "K": K}
            chosen = dispatch.select(QUANTIZE_KEY, axes, variant, threads)
            if not cpu.own(chosen):
                return None
            _remember(PLANNED_QUANTIZATIONS, key, chosen, axes, threads)
            return native().QuantizePlan(_quantize(chosen, axes, threads))

        _keep(quantize_plans(), key, made)


def plan_product(weights: PackedWeights, M: int, dtype: Any, variant: str | None, threads: int | None) -> None:
    """Make the plan for the next product of that kind."""
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
        _remember(weights.planned, key, chosen, axes, threads)
        launch, room = _product(chosen, weights, axes, threads), _room(chosen, axes) > 0
        return native().ProductPlan(launch, _read(chosen, weights), *np.lib.array_utils.byte_bounds(weights.data), room)

    _keep(weights.plans, key, made)


def plan_linear(
    plans: Any,
    planned: dict[Any, KernelRan],
    weights: PackedWeights,
    bias: npt.NDArray[np.float32] | None,
    M: int,
    variant: str | None,
    threads: int | None,
    requirement: Requirement,
) -> None:
    """Make the plan for the layer's next call with M rows. Its kernel is added to `planned`."""

    def made() -> Any:
        axes = _axes(weights, M)
        asked = (threads, requirement)
        product = product_with(weights, "cpu", "float32", axes, weights.asked(variant), *asked)
        quantize = dispatch.select(QUANTIZE_KEY, {"M": M, "K": axes["K"]}, None, *asked)
        if not (_kept(product, axes) and cpu.own(quantize)) or not _plain(bias):
            return None
        _remember(planned, M, product, axes, threads)
        launches = _quantize(quantize, axes, threads), _product(product, weights, axes, threads)
        call, room = native().LinearCall(*launches, bias), _room(product, axes) > 0
        return native().LinearPlan(call, product, _read(product, weights), bias, room)

    _keep(plans, M, made)


def plan_addresses(
    plans: Any, key: Any, format: str, dtypes: tuple[str, str], axes: Axes, threads: int, given: tuple[Any, ...]
) -> None:
    """Make the plan for the next call with that key, for layers without bias and with weights of one scale in that
    format: `run_at`, its kernel, and the arguments given here.

    Its `run_at` takes the addresses of rows, weights and output (rows and output of these dtypes), the weights' scale.
    No plan is made if the product needs a workspace."""
    rows, output = dtypes

    def made() -> Any:
        product = dispatch.select(KernelKey("cpu", TERNARY_MATMUL.name, format, output), axes, None, threads)
        quantize = dispatch.select(key_for(rows, "cpu"), {"M": axes["M"], "K": axes["K"]}, None, threads)
        if not (cpu.own(product) and cpu.own(quantize)) or _room(product, axes):
            return None
        data = np.empty(math.prod(FORMATS[format].packed_shape((axes["N"], axes["K"]))), np.uint8)
        launches = _quantize(quantize, axes, threads, rows), _bound(product, data, np.float32(1), axes, threads)
        plan = native().LinearPlan(native().LinearCall(*launches), product, None, None, False)
        return plan.run_at, KernelRan(product.id, axes, threads), *given

    _keep(plans, key, made)


def receipt_of(plan: Any, weights: PackedWeights) -> Receipt:
    """The receipt of the last call of a layer's plan."""
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


def _remember(planned: dict[Any, KernelRan], key: Any, chosen: Variant, axes: Axes, threads: int | None) -> None:
    """Keep what a plan runs, which its calls do not report."""
    planned.pop(key, None)
    if len(planned) >= _MOST_PLANNED:  # more than there are plans, so the oldest one has no plan any more
        del planned[next(iter(planned))]
    planned[key] = KernelRan(chosen.id, axes, dispatch.threads_for(chosen.key, threads))


def _keep(plans: Any, key: Any, made: Callable[[], Any]) -> None:
    if dispatch.observed():
        return
    registry: Registry = dispatch.registry()
    plans.current(registry)  # drops outdated plans
    if key not in plans:
        plan = made()
        if plan is not None:
            plans.keep(registry, key, plan)


def _axes(weights: PackedWeights, M: int) -> dict[str, int]:
    return {"M": M, "N": weights.shape[0], "K": weights.shape[1]}


def _kept(chosen: Variant, axes: Axes) -> bool:
    """Whether to make a plan of that product. A plan keeps the product's workspace and, with one, an output."""
    room = _room(chosen, axes)
    return cpu.own(chosen) and (room == 0 or room + 4 * axes["M"] * axes["N"] <= ROOM)


def _room(chosen: Variant, axes: Axes) -> int:
    """Bytes of the workspace that a launch keeps; only one call at a time may use it."""
    return kept(chosen.key.format, axes) if cpu.own(chosen) else chosen.workspace(axes)


def _plain(bias: npt.NDArray[np.float32] | None) -> bool:
    return bias is None or (bias.flags.c_contiguous and bias.flags.aligned)


def _read(chosen: Variant, weights: PackedWeights) -> npt.NDArray[np.uint8]:
    found: npt.NDArray[np.uint8] = weights.packed_as(chosen.key.format)
    return found


def _quantize(chosen: Variant, axes: Axes, threads: int | None, dtype: str = "float32") -> Launch:
    """A launch bound to arrays without content: a plan passes the addresses of others."""
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
