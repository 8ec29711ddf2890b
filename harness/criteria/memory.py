"""Memory of a call, and leaks: both from one observation of the memory dimension (see validate.memory)."""

from __future__ import annotations

from tritmark.harness.criteria.bench import CriteriaBench, CriterionFinding, named
from tritmark.harness.criteria.model import MeasuredFigure, Unit
from tritmark.harness.criteria.plan import LeakCriterion, MemoryCriterion
from tritmark.harness.record import MemoryUse, Slope, Status
from tritmark.harness.validate.guard_names import Guard
from tritmark.harness.validate.memory import confirmed_use, watched

_UNKNOWN_LEAKS = "leaks of "
"""The begin of the limit that names unread series, see validate.memory."""


def observed(bench: CriteriaBench, size: int) -> MemoryUse:
    """The memory dimension of the best kernel at that size, observed once."""
    if size not in bench.memory_uses:
        variant = bench.best(size)
        inputs = bench.material(size).encoded(variant.key.format)[0]
        threads = bench.threads if bench.device.memory is None else 1
        bench.memory_uses[size] = confirmed_use(
            lambda again: watched(bench.workers, variant, again),
            inputs,
            bench.kernel.at(size),
            threads=threads,
            packs=variant.packs,
        )
        bench.workers.renew(variant)
    return bench.memory_uses[size]


def judge_memory(bench: CriteriaBench, criterion: MemoryCriterion) -> CriterionFinding:
    """The memory of a call beyond inputs and outputs, as a multiple of the inputs."""
    use = observed(bench, criterion.size)
    kernel = _kernel(bench, criterion.size)
    if use.overhead is None:
        return CriterionFinding(Status.NOT_RUN, f"the peak of a call is not known: {use.reason}", kernel=kernel)
    peak = (use.device_peak if bench.device.memory is not None else use.host_peak) or 0
    whole = (use.inputs + use.outputs + peak) / use.inputs
    figures = (
        MeasuredFigure(name="of the inputs, beyond inputs and outputs", value=use.overhead, unit=Unit.TIMES),
        MeasuredFigure(name="of the inputs, with inputs and outputs", value=whole, unit=Unit.TIMES),
        MeasuredFigure(name="peak beyond inputs and outputs", value=peak, unit=Unit.BYTES),
        MeasuredFigure(name="smallest peak that can be measured", value=use.floor, unit=Unit.BYTES),
        MeasuredFigure(name="inputs", value=use.inputs, unit=Unit.BYTES),
    )
    notes = (f"the memory verdict is {use.status.value}: {use.reason}",) if use.status is Status.FAIL else ()
    if use.overhead >= criterion.threshold:
        reason = (
            f"{use.overhead:.3g} times its inputs beyond inputs and outputs; below {criterion.threshold:g} is required"
        )
        return CriterionFinding(Status.FAIL, reason, figures, kernel, notes=notes)
    return CriterionFinding(Status.PASS, "", figures, kernel, notes=notes)


def judge_leaks(bench: CriteriaBench, criterion: LeakCriterion) -> CriterionFinding:
    """Whether memory grows from call to call, or with launches that are bound, run and dropped."""
    use = observed(bench, criterion.size)
    kernel = _kernel(bench, criterion.size)
    growth = use.device_leak if bench.device.memory is not None else use.leak
    figures = (
        (_slope(growth), MeasuredFigure(name="calls", value=use.calls, unit=Unit.COUNT)) if growth is not None else ()
    )
    if Guard.LEAK in use.caught_by:
        return CriterionFinding(Status.FAIL, use.reason, figures, kernel)
    unknown = [limit for limit in use.limits if limit.startswith(_UNKNOWN_LEAKS)]
    if unknown or not figures:
        return CriterionFinding(
            Status.NOT_RUN, "; ".join(unknown) or "the growth of memory is not known", figures, kernel
        )
    return CriterionFinding(Status.PASS, "", figures, kernel)


def _slope(growth: Slope) -> MeasuredFigure:
    return MeasuredFigure(
        name="growth", value=growth.median, unit=Unit.BYTES_PER_CALL, low=growth.low, high=growth.high
    )


def _kernel(bench: CriteriaBench, size: int) -> str:
    return named(bench.best(size), bench.threads, bench.device)
