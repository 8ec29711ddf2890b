"""Plans of a layer's calls, see kernels/dispatch/plans.py: quantization and product in one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.monitor.hook import KernelRan
from tritmark.harness.spec import Axes, KernelKey, Receipt, Requirement
from tritmark.kernels.activation_quantize.plans import quantize_launch
from tritmark.kernels.activation_quantize.spec import key_for
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.plans import RESTS_ON, keep, native, remember
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.linear.row_quantizer import RowQuantizer
from tritmark.kernels.native import cpu, prefetch
from tritmark.kernels.ternary_matmul.plans import (
    bytes_read,
    launch_of,
    plannable,
    product_launch,
    room_of,
)
from tritmark.kernels.ternary_matmul.spec import OP as TERNARY_MATMUL
from tritmark.kernels.weights.packed import PackedWeights, axes_of, product_with


def linear_plans() -> Any:
    """An empty set of plans, for one layer."""
    return native().LinearPlans(*RESTS_ON)


def address_plans() -> Any:
    """An empty set of plans, for layers with arrays of another library: for get and plan_addresses."""
    return native().AddressPlans(*RESTS_ON)


def plan_linear(
    plans: Any,
    planned: dict[Any, KernelRan],
    weights: PackedWeights,
    bias: npt.NDArray[np.float32] | None,
    quantizer: RowQuantizer,
    M: int,
    variant: str | None,
    threads: int | None,
    requirement: Requirement,
) -> None:
    """Make the plan for the layer's next call with M rows. Its kernel is added to `planned`."""

    def made() -> Any:
        axes = axes_of(weights, M)
        asked = (threads, requirement)
        product = product_with(weights, "cpu", "float32", axes, weights.asked(variant), *asked)
        of_rows = quantizer.axes(M, axes["K"])
        quantize = dispatch.select(quantizer.key("float32", "cpu"), of_rows, None, *asked)
        if not (plannable(product, axes) and cpu.own(quantize)) or not _plain(bias):
            return None
        remember(planned, M, product, axes, threads)
        launches = (
            quantize_launch(quantize, of_rows, threads, constants=quantizer.constants),
            product_launch(product, weights, axes, threads),
        )
        call, room = native().LinearCall(*launches, bias, quantizer.rotates), room_of(product, axes) > 0
        read = bytes_read(product, weights)
        return native().LinearPlan(call, product, read, bias, room, constants=quantizer.constants)

    keep(plans, M, made)


def plan_addresses(
    plans: Any, key: Any, format: str, dtypes: tuple[str, str], axes: Axes, threads: int, given: tuple[Any, ...]
) -> None:
    """Make the plan for the next call with that key, for layers without bias and with weights in that format, of one
    scale or with scales of groups in their bytes: `run_at`, its kernel, and the arguments given here.

    Its `run_at` takes the addresses of rows, weights and output (rows and output of these dtypes), the weights' scale.
    No plan is made if the product needs a workspace other than the sums of groups."""
    rows, output = dtypes

    def made() -> Any:
        product = dispatch.select(KernelKey("cpu", TERNARY_MATMUL.name, format, output), axes, None, threads)
        quantize = dispatch.select(key_for(rows, "cpu"), {"M": axes["M"], "K": axes["K"]}, None, threads)
        if not (cpu.own(product) and cpu.own(quantize)):
            return None
        room = room_of(product, axes)
        if room and FORMATS[format].scale_per != "group":
            return None
        data = np.empty(math.prod(FORMATS[format].packed_shape((axes["N"], axes["K"]))), np.uint8)
        launches = (
            quantize_launch(quantize, axes, threads, rows),
            launch_of(product, data, np.float32(1), axes, threads),
        )
        plan = native().LinearPlan(native().LinearCall(*launches), product, None, None, False, room)
        return plan.run_at, KernelRan(product.id, axes, threads), *given

    keep(plans, key, made)


def receipt_of(plan: Any, weights: PackedWeights, quantizer: RowQuantizer) -> Receipt:
    """The receipt of the last call of a layer's plan."""
    return Receipt(
        kernel=plan.variant.id,
        ran=isa_of(plan.rank),
        runs=plan.runs,
        threads=plan.threads_used,
        note=quantizer.noted(weights.repacked_note(plan.variant)),
        tuned="; ".join(filter(None, (plan.variant.tuned, prefetch.tuned_now(plan.variant.key.format)))),
    )


def isa_of(rank: int) -> str:
    """The instruction set of that rank; "" for none."""
    return next((isa.name for isa in cpu.ISAS.values() if isa.rank == rank), "")


def _plain(bias: npt.NDArray[np.float32] | None) -> bool:
    return bias is None or (bias.flags.c_contiguous and bias.flags.aligned)
