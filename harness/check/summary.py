"""The verdict of a check from its Record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from tritmark.harness.check.facts import CheckedDimension, FirstDifference, KernelVerdict, NextStep, ShapeSpeed
from tritmark.harness.check.verdict import CheckVerdict
from tritmark.harness.record import DIMENSIONS, Guarded, Measurement, Record, Run, Status
from tritmark.harness.spec import Variant
from tritmark.harness.text import groups
from tritmark.harness.text.outcome import deciding, outcome

PASSED = "pass"
"""The code of a kernel without a fault."""
STEPS = 3
"""Proposals in a verdict."""


def check_verdict(
    record: Record,
    mine: Sequence[Variant],
    best: Sequence[Variant],
    baselines: Sequence[Variant],
    *,
    seconds: float,
    path: str,
) -> CheckVerdict:
    """The verdict on the variants of a file. `best` and `baselines` are the built-in variants that were timed beside
    them."""
    kernels = tuple(_kernel(record, variant, best, baselines) for variant in mine)
    own = record.model_copy(update={"runs": tuple(run for run in record.runs if run.kernel in {v.id for v in mine})})
    status = groups.worst(each.status for each in kernels)
    return CheckVerdict(
        code=min((each.code for each in kernels if each.status is status), key=lambda code: code == PASSED),
        status=status,
        passed=outcome(deciding(own, record)).passed,
        kernels=kernels,
        seed=record.environment.seed,
        seconds=round(seconds, 3),
        record=path,
    )


def _kernel(record: Record, variant: Variant, best: Sequence[Variant], baselines: Sequence[Variant]) -> KernelVerdict:
    runs = [run for run in record.runs if run.kernel == variant.id]
    dimensions = {name: _dimension(runs, name) for name in DIMENSIONS}
    status = groups.worst(each.status for each in dimensions.values())
    deciding = next(name for name, each in dimensions.items() if each.status is status)
    guards = dimensions[deciding].guards
    correct = dimensions["accuracy"].status in {Status.PASS, Status.AMBIGUOUS}
    (rival, plain) = (_beside(record, variant, each) for each in (best, baselines))
    speed = tuple(_speeds(record, runs, rival, plain)) if correct else ()
    borrowed = tuple(dict.fromkeys(owner for run in runs for owner in run.accuracy.borrowed))
    return KernelVerdict(
        kernel=variant.id,
        code="borrowed" if borrowed and status is Status.PASS else _code(status, deciding, guards),
        status=status,
        dimensions=dimensions,
        guard=guards[0] if guards else "",
        borrowed=borrowed,
        limits=tuple(_limits(runs)),
        first=_first(runs),
        speed=speed,
        best=rival,
        baseline=plain,
        ceiling_percent=_percent(groups.mean(each.ceiling_fraction for each in speed)),
        score=None if borrowed else _mean([each.score for each in speed if each.score is not None]),
        next=tuple(islice(_next(record, variant), STEPS)),
    )


def _code(status: Status, dimension: str, guards: Sequence[str]) -> str:
    if status is Status.PASS:
        return PASSED
    return f"{dimension}.{guards[0] if guards else status.value.replace(' ', '_')}"


def _dimension(runs: Sequence[Run], name: str) -> CheckedDimension:
    verdicts = {run.workload.id: run.verdict(name) for run in runs}
    status = groups.worst(each.status for each in verdicts.values())
    workload, worst = next(
        ((id, each) for id, each in verdicts.items() if each.status is status), ("", None)
    )  # fmt: skip
    guards = dict.fromkeys(
        guard for each in verdicts.values() if isinstance(each, Guarded) and each.failed for guard in each.caught_by
    )
    return CheckedDimension(
        status=status,
        runs=sum(each.status is not Status.NOT_RUN for each in verdicts.values()),
        guards=tuple(guards),
        workload="" if status is Status.PASS else workload,
        reason="" if worst is None or status is Status.PASS else worst.reason,
        cause=None if worst is None else worst.cause,
    )


def _limits(runs: Sequence[Run]) -> dict[str, None]:
    """The limits of all verdicts, each once."""
    verdicts = (run.verdict(name) for run in runs for name in DIMENSIONS)
    return dict.fromkeys(limit for each in verdicts if isinstance(each, Guarded) for limit in each.limits)


def _first(runs: Sequence[Run]) -> FirstDifference | None:
    for run in runs:
        if run.accuracy.first is not None:
            return FirstDifference(workload=run.workload.id, **run.accuracy.first.model_dump())
    return None


def _beside(record: Record, variant: Variant, others: Sequence[Variant]) -> str:
    """The id of the built-in variant of the same op, device and dtype that has Runs here; "" if there is none."""
    wanted = (variant.key.device, variant.key.op, variant.key.dtype)
    ran = {run.kernel for run in record.runs}
    found = (each.id for each in others if (each.key.device, each.key.op, each.key.dtype) == wanted and each.id in ran)
    return next(found, "")


def _speeds(record: Record, runs: Sequence[Run], rival: str, plain: str) -> Iterator[ShapeSpeed]:
    """The speed at each shape with a figure that no guard doubts."""
    by_place = {(run.kernel, run.workload.id): run for run in record.runs}
    for run in runs:
        for data in ("cold", "hot"):
            mine = _figure(run, data)
            if mine is None:
                continue
            best, base = (_figure(by_place.get((id, run.workload.id)), data) for id in (rival, plain))
            reached, floor = groups.part(mine), groups.part(base)
            comparable = best is not None and not (mine.timing.too_noisy or best.timing.too_noisy)
            yield ShapeSpeed(
                workload=run.workload.id,
                data="cold" if data == "cold" else "hot",
                time_ns=mine.timing.median_ns,
                low_ns=mine.timing.low_ns,
                high_ns=mine.timing.high_ns,
                threads=run.threads if run.receipt is None else run.receipt.threads,
                best_ns=None if best is None else best.timing.median_ns,
                speedup=best.timing.median_ns / mine.timing.median_ns if best is not None and comparable else None,
                ceiling=mine.against.ceiling,
                ceiling_fraction=reached,
                baseline_fraction=floor,
                score=None if reached is None or floor is None or floor >= 1 else (reached - floor) / (1 - floor),
            )
            break


def _figure(run: Run | None, data: str) -> Measurement | None:
    found: Measurement | None = None if run is None or groups.doubted(run) else getattr(run.performance, data)
    return found


def _next(record: Record, variant: Variant) -> Iterator[NextStep]:
    rules = set()
    for each in record.proposals:
        if each.kernel == variant.id and each.rule not in rules:
            rules.add(each.rule)
            yield NextStep(
                rule=each.rule,
                title=each.title,
                edit=each.edit,
                workload=each.workload,
                gain=each.gain,
                verify=each.verify,
            )


def _mean(found: Sequence[float]) -> float | None:
    return sum(found) / len(found) if found else None


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction
