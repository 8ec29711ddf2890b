"""The time of one whole call from Python, from host memory to host memory."""

from __future__ import annotations

from tritmark.harness.criteria import tasks
from tritmark.harness.criteria.bench import SIMULATED, CriteriaBench, CriterionFinding, difference
from tritmark.harness.criteria.model import MeasuredFigure, Unit
from tritmark.harness.criteria.plan import LatencyCriterion
from tritmark.harness.measure.statistics import median, order_interval
from tritmark.harness.record import Status
from tritmark.harness.text.units import count, time

SECONDS = 0.5
_MS = 1e6


def judge_latency(bench: CriteriaBench, criterion: LatencyCriterion) -> CriterionFinding:
    """Time single calls; the whole interval of the median must be below the threshold."""
    if bench.simulated:
        return CriterionFinding(Status.NOT_RUN, SIMULATED)
    size, call = criterion.size, bench.kernel.call
    variant = bench.best(size)
    worker = bench.workers.of(variant)
    arguments = call, bench.device.type, bench.material(size).logical[0], bench.kernel.at(size), bench.threads
    first: float = worker.call(f"calling {call}", tasks.add_call, "call", *arguments)
    taken: list[float] = worker.call(f"timing {call}", tasks.single_calls, "call", SECONDS)
    outputs = worker.call("reading", tasks.written, "call")
    worker.call("freeing", tasks.drop, "call")
    low, high = order_interval(taken)
    figures = (
        MeasuredFigure(name="median call", value=median(taken), unit=Unit.NS, low=low, high=high),
        MeasuredFigure(name="slowest call", value=max(taken), unit=Unit.NS),
        MeasuredFigure(name="first call", value=first, unit=Unit.NS),
        MeasuredFigure(name="calls", value=len(taken), unit=Unit.COUNT),
    )
    kernel = f"{call} on {bench.device.type}"
    wrong, what = difference(bench.case(size).expected, outputs)
    if wrong:
        return CriterionFinding(Status.FAIL, f"the result is incorrect: {what}", figures, kernel)
    most = criterion.threshold * _MS
    if high < most:
        return CriterionFinding(Status.PASS, "", figures, kernel)
    if low >= most:
        reason = f"{count(size)} elements take {time(median(taken))}; less than {time(most)} is required"
        return CriterionFinding(Status.FAIL, reason, figures, kernel)
    reason = f"not decided: {time(low)} to {time(high)} contains {time(most)}; next: repeat on a quiet machine"
    return CriterionFinding(Status.NOT_RUN, reason, figures, kernel)
