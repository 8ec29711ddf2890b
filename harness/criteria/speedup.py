"""An accelerator beside the baseline, interleaved in one process: with the data where each kernel works, and end to
end, from host memory to host memory. At each size, and from which size on each of them wins.

Resident figures are of kernels that use the same arrays again, by the clocks of the devices: no Python, no copies. The
baseline is the best kernel on all its cores. Its plain kernel on one thread is also shown, and does not decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from tritmark.harness.criteria import tasks
from tritmark.harness.criteria.bench import (
    SIMULATED,
    CriteriaBench,
    CriterionFinding,
    difference,
    missing_accelerators,
    named,
)
from tritmark.harness.criteria.model import Crossover, MeasuredFigure, SizePoint, Unit
from tritmark.harness.criteria.plan import SpeedUpCriterion
from tritmark.harness.record import Ratio, Status
from tritmark.harness.text.units import count, times

SECONDS = 0.3
"""Time for one size, unless its interval is narrow earlier."""


def judge_speedup(bench: CriteriaBench, criterion: SpeedUpCriterion) -> CriterionFinding:
    """Compare the device with the baseline at each size; the largest one decides."""
    if not bench.accelerated:
        return CriterionFinding(Status.NOT_RUN, f"no accelerator is judged here: {missing_accelerators(bench)}")
    if bench.simulated:
        return CriterionFinding(Status.NOT_RUN, SIMULATED)
    whole = criterion.data == "end to end"
    points: list[SizePoint] = []
    notes: list[str] = []
    kernel = baseline = ""
    plain: Ratio | None = None
    sizes = [1 << power for power in range(criterion.powers[0], criterion.powers[1] + 1)]
    for size in sizes:
        why = bench.fits(size)
        if why:
            notes.append(f"larger sizes were not measured: {why}")
            break
        variant, other = bench.best(size), bench.best(size, bench.baseline)
        cores = bench.baseline.cores()
        worker = bench.workers.of(variant)
        axes = bench.kernel.at(size)
        material = bench.material(size)
        if whole:
            for name, device in (("kernel", bench.device), ("baseline", bench.baseline)):
                arguments = bench.kernel.call, device.type, material.logical[0], axes, cores
                worker.call(f"calling it on {device.type}", tasks.add_call, name, *arguments)
            kernel = f"{bench.kernel.call} on {bench.device.type}"
            baseline = f"{bench.kernel.call} on {bench.baseline.type}, {cores} threads"
        else:
            for name, each, threads in (("kernel", variant, 1), ("baseline", other, cores)):
                inputs = material.encoded(each.key.format)[0]
                worker.call(f"binding {each.id}", tasks.add_kernel, name, each.id, inputs, axes, threads)
            kernel, baseline = named(variant, 1, bench.device), named(other, cores, bench.baseline)
        found: tasks.RaceResult = worker.call(
            "timing both interleaved", tasks.race, "kernel", "baseline", bench.seed, SECONDS
        )
        points.append(SizePoint(size=size, ratio=found.ratio, kernel_ns=found.a_ns, other_ns=found.b_ns))
        for name, device in (("kernel", bench.device), ("baseline", bench.baseline)):
            wrong, first = difference(bench.case(size, device).expected, worker.call("reading", tasks.written, name))
            if wrong:
                why = f"the timed outputs of {name} are incorrect with {count(size)} elements: {first}"
                return CriterionFinding(Status.FAIL, why, (_figure(points[-1].ratio),), kernel, baseline, tuple(points))
        if size == sizes[-1] and not whole:
            each = bench.installed.registry.select_best(
                bench.kernel.key(bench.baseline.type), axes, bench.plan.baseline.plain
            )
            inputs = material.encoded(each.key.format)[0]
            worker.call(f"binding {each.id}", tasks.add_kernel, "plain", each.id, inputs, axes, 1)
            plain = worker.call("timing both interleaved", tasks.race, "kernel", "plain", bench.seed, SECONDS).ratio
            notes.append(f"over {named(each, 1, bench.baseline)}: {times(plain)}")
        worker.call("freeing", tasks.drop, "kernel", "baseline", "plain")
    if not points:
        return CriterionFinding(Status.NOT_RUN, notes[-1], notes=tuple(notes))
    last = points[-1]
    figures = [_figure(last.ratio)]
    if plain is not None:
        figures.append(
            MeasuredFigure(
                name="over the plain kernel", value=plain.median, unit=Unit.TIMES, low=plain.low, high=plain.high
            )
        )
    status, reason = decided(last.ratio, criterion.threshold)
    if last.size != sizes[-1] and status is Status.PASS:
        status, reason = Status.NOT_RUN, f"{count(sizes[-1])} elements were not measured; the largest size decides"
    return CriterionFinding(
        status,
        f"{reason}, with {count(last.size)} elements" if status is Status.FAIL else reason,
        tuple(figures),
        kernel,
        baseline,
        tuple(points),
        crossover(points),
        tuple(notes),
    )


def _figure(ratio: Ratio) -> MeasuredFigure:
    return MeasuredFigure(name="speed-up", value=ratio.median, unit=Unit.TIMES, low=ratio.low, high=ratio.high)


def decided(ratio: Ratio, threshold: float) -> tuple[Status, str]:
    """Whether a speed-up reaches the threshold. The whole interval must, and noise that hides it decides nothing."""
    if ratio.low >= threshold:
        return Status.PASS, ""
    if ratio.high < threshold:
        return Status.FAIL, f"{times(ratio)}; at least {threshold:g}x are required"
    reason = f"not decided: the interval {ratio.low:.3g} to {ratio.high:.3g} contains {threshold:g}"
    return Status.NOT_RUN, f"{reason}; next: repeat on a quiet machine"


def crossover(points: Sequence[SizePoint]) -> Crossover:
    """From which size on the kernel is faster, and up to which size the baseline is. The whole interval must show it at
    every size on that side."""
    rising = sorted(points, key=lambda each: each.size)
    kernel_from = baseline_to = None
    for each in reversed(rising):
        if each.ratio.low <= 1:
            break
        kernel_from = each.size
    for each in rising:
        if each.ratio.high >= 1:
            break
        baseline_to = each.size
    return Crossover(kernel_from=kernel_from, baseline_to=baseline_to)
