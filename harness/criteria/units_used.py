"""How many devices of the kind do their share: each GPU of the machine runs some random calls and proves it with its
UUID. On the host: how many of its cores take part in a call."""

from __future__ import annotations

from tritmark.harness.criteria import tasks
from tritmark.harness.criteria.bench import CriteriaBench, CriterionFinding, difference, named
from tritmark.harness.criteria.exact import refused
from tritmark.harness.criteria.model import MeasuredFigure, Unit
from tritmark.harness.criteria.plan import UnitsCriterion
from tritmark.harness.criteria.random_calls import drawn_call, expected_of
from tritmark.harness.errors import CandidateError, DeviceError, WorkerError
from tritmark.harness.record import Status
from tritmark.harness.text.units import counted

CALLS = 32
"""Random calls on each device."""


def judge_units(bench: CriteriaBench, criterion: UnitsCriterion) -> CriterionFinding:
    """The share of devices, or of cores."""
    return _cores(bench, criterion) if bench.device.memory is None else _devices(bench, criterion)


def _cores(bench: CriteriaBench, criterion: UnitsCriterion) -> CriterionFinding:
    variant, cores = bench.best(criterion.size), bench.threads
    worker = bench.workers.of(variant)
    case, axes = bench.case(criterion.size), bench.kernel.at(criterion.size)
    given = tasks.CallInputs(case.inputs, axes, cores, 0)
    (reply,) = worker.call("a call on all cores", tasks.run_calls, [given])
    worker.call("binding it", tasks.add_kernel, "cores", variant.id, case.inputs, axes, cores)
    busy = worker.call("its threads", tasks.busy_share, "cores")
    worker.call("freeing", tasks.drop, "cores")
    figures = [
        MeasuredFigure(name="cores that took part", value=reply.threads_used / cores, unit=Unit.SHARE),
        MeasuredFigure(name="cores", value=cores, unit=Unit.COUNT),
    ]
    if busy is not None:
        figures.append(MeasuredFigure(name="processor time of all cores", value=busy, unit=Unit.SHARE))
    kernel = named(variant, cores, bench.device)
    _, first = difference(case.expected, reply.outputs)
    if first:
        return CriterionFinding(Status.FAIL, f"the result on all cores is incorrect: {first}", tuple(figures), kernel)
    return _decided(criterion, reply.threads_used, cores, "core", tuple(figures), kernel, ())


def _devices(bench: CriteriaBench, criterion: UnitsCriterion) -> CriterionFinding:
    registry, kind = bench.installed.registry, bench.device
    there = kind.numbering.count() if kind.numbering is not None else 1
    names = [f"{kind.type}:{index}" for index in range(there)] if there > 1 else [kind.type]
    drawn = [drawn_call(bench, number, criterion.size) for number in range(CALLS)]
    used: dict[str, str] = {}
    failures: list[str] = []
    kernel = ""
    for name in names:
        registry.number(name)
        variant = bench.best(criterion.size, registry.devices[name])
        kernel = kernel or variant.id
        calls = [
            tasks.CallInputs(
                bench.op.encode(each.logical, bench.kernel.at(each.size), variant.key.format),
                bench.kernel.at(each.size),
                1,
                each.offset,
            )
            for each in drawn
        ]
        try:
            replies: list[tasks.CallReply] = bench.workers.of(variant).call("random calls", tasks.run_calls, calls)
        except (WorkerError, CandidateError, DeviceError) as error:
            bench.workers.renew(variant)
            failures.append(f"{name}: it broke: {error}")
            continue
        bad = ""
        for each, reply in zip(drawn, replies, strict=True):
            what = difference(expected_of(bench, each), reply.outputs)[1] or refused(reply)
            bad = bad or (f"{name}, {each}: {what}" if what else "")
        unit = replies[-1].unit or name
        if bad:
            failures.append(bad)
        elif unit in used:
            failures.append(f"{name}: the calls ran on {unit}, as those of {used[unit]} did")
        else:
            used[unit] = name
    figures = (
        MeasuredFigure(name="devices with correct results", value=len(used) / there, unit=Unit.SHARE),
        MeasuredFigure(name="devices", value=there, unit=Unit.COUNT),
    )
    return _decided(criterion, len(used), there, "device", figures, kernel, tuple(failures))


def _decided(
    criterion: UnitsCriterion,
    used: int,
    there: int,
    noun: str,
    figures: tuple[MeasuredFigure, ...],
    kernel: str,
    failures: tuple[str, ...],
) -> CriterionFinding:
    notes = (f"{used} of {counted(there, noun)}",)
    if used >= criterion.threshold * there:
        return CriterionFinding(Status.PASS, "", figures, kernel, notes=notes, failures=failures)
    reason = "; ".join((f"{used} of {counted(there, noun)}", *failures[:1]))
    return CriterionFinding(Status.FAIL, reason, figures, kernel, failures=failures)
