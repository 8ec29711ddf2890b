"""Time for each doubling of the size, interleaved: two calls with n elements beside one with 2n.

Calls are cold: arrays come from memory at every size, so no ratio shows the step from one cache level to the next. If
that is not possible, a note says so, and the ratios may exceed 2 there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tritmark.harness.criteria import tasks
from tritmark.harness.criteria.bench import SIMULATED, CriteriaBench, CriterionFinding, difference, named
from tritmark.harness.criteria.model import MeasuredFigure, SizePoint, Unit
from tritmark.harness.criteria.plan import ScalingCriterion
from tritmark.harness.record import Ratio, Status
from tritmark.harness.spec import Variant
from tritmark.harness.text.units import count, counted, times
from tritmark.harness.validate.ceiling import TELLING
from tritmark.harness.worker import Worker

SECONDS = 0.5
"""Time for one pair of sizes, unless its interval is narrow earlier."""


def judge_scaling(bench: CriteriaBench, criterion: ScalingCriterion) -> CriterionFinding:
    """Measure each doubling, and the least beside the largest size."""
    if bench.simulated:
        return CriterionFinding(Status.NOT_RUN, SIMULATED)
    variant = bench.best(1 << criterion.powers[1])
    found = _Sizes(bench, variant, bench.workers.of(variant))
    try:
        return found.judge(criterion)
    finally:
        bench.workers.renew(variant)  # its arrays are large


class _Sizes:
    """The measurements of one kernel at several sizes."""

    def __init__(self, bench: CriteriaBench, variant: Variant, worker: Worker) -> None:
        self._bench, self._variant, self._worker = bench, variant, worker
        self._threads = bench.threads if bench.device.memory is None else 1
        self._kernel = named(variant, self._threads, bench.device)
        self._points: list[SizePoint] = []
        self._warm: list[int] = []
        """Sizes whose arrays may come from a cache."""

    def judge(self, criterion: ScalingCriterion) -> CriterionFinding:
        first, last = criterion.powers
        notes: list[str] = []
        reached = first
        for power in range(first, last + 1):
            why = self._bench.fits(1 << power)
            if why:
                notes.append(f"larger sizes were not measured: {why}")
                break
            self._add(power)
            if power > first:
                wrong = self._race(power - 1, power, criterion.threshold)
                self._worker.call("freeing", tasks.drop, _name(power - 1))
                if wrong:
                    return CriterionFinding(
                        Status.FAIL, wrong, self._figures(None), self._kernel, points=tuple(self._points)
                    )
                reached = power
        if not self._points:
            return CriterionFinding(Status.NOT_RUN, "; ".join(notes) or "no doubling was measured", kernel=self._kernel)
        span: Ratio | None = None
        if reached > first + 1:
            self._add(first)
            span = self._timed(first, reached, criterion.threshold).ratio
        if self._warm:
            sizes = ", ".join(count(1 << power) for power in sorted(set(self._warm)))
            notes.append(f"not cold, so a ratio may show the step to a slower cache: {sizes} elements")
        status, reason = decided(self._points, span, reached - first, criterion.threshold)
        if reached != last and status is Status.PASS:
            status, reason = Status.NOT_RUN, f"in part: {'; '.join(notes)}"
        return CriterionFinding(
            status, reason, self._figures(span), self._kernel, points=tuple(self._points), notes=tuple(notes)
        )

    def _add(self, power: int) -> None:
        id, axes = self._variant.id, self._bench.kernel.at(1 << power)
        inputs = self._bench.material(1 << power).encoded(self._variant.key.format)[0]
        what = f"binding {id}"
        if not self._worker.call(what, tasks.add_kernel, _name(power), id, inputs, axes, self._threads, True):
            self._warm.append(power)

    def _timed(self, power: int, other: int, threshold: float) -> tasks.RaceResult:
        """The ratio of two sizes. One beyond its limit is measured again: of many intervals with 95 % confidence, some
        miss their value by chance. If the second is not beyond it, the interval of both contains the limit, so nothing
        is decided."""
        doublings = other - power

        def race(seed: int) -> tasks.RaceResult:
            arguments = _name(power), _name(other), seed, SECONDS, 1 << doublings
            found: tasks.RaceResult = self._worker.call("timing two sizes", tasks.race, *arguments)
            return found

        first = race(self._bench.seed)
        if not beyond(first.ratio, threshold**doublings):
            return first
        second = race(self._bench.seed + 1)
        low, high = min(first.ratio.low, second.ratio.low), max(first.ratio.high, second.ratio.high)
        return replace(second, ratio=second.ratio.model_copy(update={"low": low, "high": high}))

    def _race(self, power: int, twice: int, threshold: float) -> str:
        """Time both. Returns what is incorrect in the outputs of the larger one."""
        found = self._timed(power, twice, threshold)
        self._points.append(SizePoint(size=1 << power, ratio=found.ratio, kernel_ns=found.a_ns, other_ns=found.b_ns))
        outputs = self._worker.call("reading", tasks.written, _name(twice))
        wrong, what = difference(self._bench.case(1 << twice).expected, outputs)
        return f"the timed outputs are incorrect with {count(1 << twice)} elements: {what}" if wrong else ""

    def _figures(self, span: Ratio | None) -> tuple[MeasuredFigure, ...]:
        most = max(self._points, key=lambda each: each.ratio.median)
        found = [
            MeasuredFigure(
                name=f"most for a doubling, from {count(most.size)}",
                value=most.ratio.median,
                unit=Unit.TIMES,
                low=most.ratio.low,
                high=most.ratio.high,
            )
        ]
        if span is not None:
            name = "time of the largest size over the least"
            found.append(MeasuredFigure(name=name, value=span.median, unit=Unit.TIMES, low=span.low, high=span.high))
        return tuple(found)


def _name(power: int) -> str:
    return f"2^{power}"


def beyond(ratio: Ratio, most: float) -> bool:
    """Whether the whole interval is above a limit by more than measurements resolve."""
    return ratio.low > most * (1 + TELLING)


def decided(points: Sequence[SizePoint], span: Ratio | None, doublings: int, threshold: float) -> tuple[Status, str]:
    """Whether time grows by at most `threshold` for each doubling, and by its power over all doublings: growth that is
    too slow to show in one doubling adds up. TELLING, the difference that measurements resolve, is admitted on each.

    FAIL if the whole interval of a ratio exceeds its limit, PASS if no interval reaches over its limit.
    """
    ratios = [(f"from {count(each.size)} to {count(2 * each.size)} elements", each.ratio, threshold) for each in points]
    if span is not None:
        ratios.append((f"over {counted(doublings, 'doubling')}", span, threshold**doublings))
    above = [_shown(*each) for each in ratios if beyond(each[1], each[2])]
    if above:
        return Status.FAIL, "; ".join(above)
    unclear = [_shown(*each) for each in ratios if each[1].high > each[2] * (1 + TELLING)]
    if unclear:
        return Status.NOT_RUN, f"not decided: {'; '.join(unclear)}; next: repeat on a quiet machine"
    return Status.PASS, ""


def _shown(where: str, ratio: Ratio, most: float) -> str:
    return f"{where} {times(ratio)}, {most:g}x is linear"
