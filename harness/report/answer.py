"""What a reader wants to know first, in sentences: is it right, how fast is it, what is not believed, and why? The
terminal, the page and Markdown begin with the same ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tritmark.harness.record import DIMENSIONS, Record, Run, Status
from tritmark.harness.text import groups, units
from tritmark.harness.text.visible import sentence

_FIGURE = re.compile(r"\d[\d.,]*")
_MOST_CLASSES = 6
_MOST_DOUBTS = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """One question, how it ended, and what there is to say."""

    question: str
    status: Status
    told: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Doubt:
    """Verdicts of one kind that are AMBIGUOUS for the same reason, whatever the figures in it."""

    dimension: str
    reason: str
    """That of the first one."""
    runs: tuple[Run, ...]


def status(record: Record) -> Status:
    """The whole Record's: NOT_RUN where nothing was judged, AMBIGUOUS where something could not be decided."""
    if not record.runs and not record.layers:
        return Status.NOT_RUN
    if not record.passed:
        return Status.FAIL
    verdicts = [run.verdict(dimension).status for run in record.runs for dimension in DIMENSIONS]
    return groups.worst([*verdicts, *(layer.status for layer in record.layers)])


def answers(record: Record) -> list[Answer]:
    """In the order in which they are asked. Those that there is nothing to say on are left out."""
    found = [_right(record), _layers(record), _fast(record), _beside(record), _others(record), _doubted(record)]
    return [each for each in found if each is not None]


def _right(record: Record) -> Answer | None:
    kernels = groups.by_kernel(record.runs)
    if not kernels:
        return None
    ended = {name: groups.worst(run.accuracy.status for run in runs) for name, runs in kernels.items()}
    by = {status: [name for name, found in ended.items() if found is status] for status in Status}
    wrong = by[Status.FAIL] + by[Status.ERROR]
    judged = len(kernels) - len(by[Status.NOT_RUN])
    parts = [f"{len(by[Status.PASS]):,} of {units.counted(judged, 'kernel')} {'is' if judged == 1 else 'are'} right"]
    parts += [
        f"{len(found):,} {word}"
        for found, word in ((wrong, "wrong or broken"), (by[Status.AMBIGUOUS], "not decided"))
        if found
    ]
    told = [", ".join(parts)]
    if by[Status.NOT_RUN]:
        told.append(f"{units.counted(len(by[Status.NOT_RUN]), 'further kernel')} could not be run here")
    told += _power([run for run in record.runs if run.accuracy.calls])
    classes = dict.fromkeys(name for run in record.runs for name in run.accuracy.uncovered)
    if classes:
        shown = "; ".join(list(classes)[:_MOST_CLASSES])
        more = len(classes) - _MOST_CLASSES
        told.append(f"No case reached these classes: {shown}" + (f" and {more:,} more" if more > 0 else ""))
    return Answer("Right?", groups.worst(ended.values()), tuple(told))


def _power(drawn: Sequence[Run]) -> list[str]:
    rarest = [run.accuracy.rarest for run in drawn if run.accuracy.rarest]
    if not rarest:
        return []
    calls = min(run.accuracy.calls for run in drawn)
    fault = f"a fault in one of {units.one_in(max(rarest))} calls would have been seen with 95 %"
    return [f"Each was judged on {calls:,} calls or more: {fault}"]


def power(run: Run) -> str:
    """What the accuracy of a Run rests on, where its cases were drawn; "" else."""
    found = run.accuracy
    if not found.calls:
        return ""
    told = f"judged on {units.counted(found.calls, 'call')} in {units.counted(found.cases, 'case')}"
    if found.rarest:
        told += f"; a fault in one of {units.one_in(found.rarest)} calls would have been seen with 95 %"
    if found.covered:
        told += f"; {len(found.covered):,} classes of inputs reached"
    if found.uncovered:
        told += f"; classes not reached: {', '.join(found.uncovered)}"
    return told


def _layers(record: Record) -> Answer | None:
    if not record.layers:
        return None
    statuses = [layer.status for layer in record.layers]
    told = (
        f"{statuses.count(Status.PASS):,} of {units.counted(len(statuses), 'layer')} of the weights hold their bounds"
    )
    return Answer("Weights?", groups.worst(statuses), (told,))


def _fast(record: Record) -> Answer | None:
    best = [groups.best_variant(runs) for runs in groups.by_key(groups.right(record)).values()]
    parts = [groups.mean(groups.part(run.performance.cold or run.performance.hot) for run in runs) for runs in best]
    reached = [part for part in parts if part is not None]
    if not reached:
        reasons = groups.causes(record.runs, "performance")
        return Answer("How fast?", Status.NOT_RUN, (f"Nothing was measured: {reasons[-1]}",)) if reasons else None
    span = (
        units.percent(min(reached)) if len(reached) == 1 else f"{100 * min(reached):.0f} to {100 * max(reached):.0f} %"
    )
    who = (
        "The best kernel reaches"
        if len(reached) == 1
        else f"The best kernels of {len(reached):,} ops and formats reach"
    )
    told = f"{who} {span} of what this machine can do"
    measured = [run for run in record.runs if run.performance.cold or run.performance.hot]
    return Answer("How fast?", groups.worst(run.performance.status for run in measured), (told,))


def _beside(record: Record) -> Answer | None:
    """What cross-validation compared, a reference apart from implementations that others ship, and what both rules
    for migration say."""
    done = [(run, each) for run in record.runs for each in run.cross.peers if each.match is not None]
    if not done:
        return None
    shipped = {run.kernel for run, each in done if not each.reference}
    alone = {run.kernel for run, each in done} - shipped
    parts = [f"{units.counted(len(shipped), 'kernel')} beside what others ship"] if shipped else []
    if alone:
        names = " and ".join(dict.fromkeys(each.peer for run, each in done if run.kernel in alone))
        parts.append(f"{units.counted(len(alone), 'kernel')} beside {names} alone")
    told = [f"Cross-validated: {', '.join(parts)}"]
    timed = [each for _, each in done if each.speedup is not None]
    if timed:
        strict = sum(each.migration_recommended for each in timed)
        speed = (
            f"Of {units.counted(len(timed), 'comparison')} in speed, the strict rule recommends migration in {strict:,}"
        )
        ruled = [each.migration_within_tenth for each in timed if each.migration_within_tenth is not None]
        if ruled:
            speed += f", the lenient one (no more than a tenth slower) in {sum(ruled):,}"
        told.append(speed)
    return Answer("Beside others?", groups.worst(run.cross.status for run, _ in done), tuple(told))


def _others(record: Record) -> Answer | None:
    """Memory, cross-validation and speed, where one of them failed."""
    told = []
    for dimension in DIMENSIONS[1:]:
        failed = dict.fromkeys(run.kernel for run in record.runs if run.verdict(dimension).failed)
        if failed:
            told.append(
                f"{units.counted(len(failed), 'kernel')} {'fails' if len(failed) == 1 else 'fail'} in {dimension}"
            )
    return Answer("What else failed?", Status.FAIL, tuple(told)) if told else None


def doubts(record: Record) -> list[Doubt]:
    """What is AMBIGUOUS, by reason; the commonest first."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in record.runs:
        for dimension in DIMENSIONS:
            verdict = run.verdict(dimension)
            if verdict.status is Status.AMBIGUOUS:
                found.setdefault((dimension, _FIGURE.sub("#", verdict.reason)), []).append(run)
    made = [Doubt(dimension, runs[0].verdict(dimension).reason, tuple(runs)) for (dimension, _), runs in found.items()]
    return sorted(made, key=lambda doubt: -len(doubt.runs))


def _doubted(record: Record) -> Answer | None:
    found = doubts(record)
    shaky = [run for run in record.runs if groups.doubted(run)]
    told = []
    if shaky:
        told.append(
            f"{units.counted(len(shaky), 'figure')} of {_measured(record):,} Runs are not shown, because a guard "
            "doubts them"
        )
    if found:
        runs = dict.fromkeys(run.id for doubt in found for run in doubt.runs)
        told.append(f"{units.counted(len(runs), 'Run')} of {len(record.runs):,} could not be decided")
        told += [
            f"{len(doubt.runs):,} in {doubt.dimension}, such as: {sentence(doubt.reason)}"
            for doubt in found[:_MOST_DOUBTS]
        ]
        if len(found) > _MOST_DOUBTS:
            told.append(f"{units.counted(len(found) - _MOST_DOUBTS, 'further reason')}: see the report")
    if not told:
        return Answer("Not believed?", Status.PASS, ("No verdict is AMBIGUOUS and no figure is doubted",))
    return Answer("Not believed?", Status.AMBIGUOUS, tuple(told))


def _measured(record: Record) -> int:
    return sum(run.performance.cold is not None or run.performance.hot is not None for run in record.runs)


def in_words(told: Iterable[str]) -> str:
    """The sentences in a row, each with its full stop."""
    return " ".join(each if each.endswith((".", "!", "?")) else f"{each}." for each in told)
