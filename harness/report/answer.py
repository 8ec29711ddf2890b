"""What a reader wants to know first, in sentences: is it right, how fast is it, what is not believed, and why? The
terminal, the page and Markdown begin with the same ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tritmark.harness.record import DIMENSIONS, TOO_NOISY, Cause, Record, Run, Status
from tritmark.harness.report import load
from tritmark.harness.text import groups, units, unseen
from tritmark.harness.text.outcome import outcome
from tritmark.harness.text.visible import sentence

_FIGURE = re.compile(r"\d[\d.,]*")
_MOST_CLASSES = 6
_MOST_DOUBTS = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """One question, how it ended, and what there is to say."""

    question: str
    status: Status
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Doubt:
    """Verdicts of one kind that are AMBIGUOUS for the same reason, whatever the figures in it."""

    dimension: str
    reason: str
    """That of the first one."""
    runs: tuple[Run, ...]


def answers(record: Record) -> list[Answer]:
    """In the order in which they are asked. Those that there is nothing to say on are left out."""
    found = [
        _right(record),
        _layers(record),
        _note(record),
        _fast(record),
        _beside(record),
        _others(record),
        _peers(record),
        _doubted(record),
        _unseen(record),
    ]
    return [each for each in found if each is not None]


def _right(record: Record) -> Answer | None:
    kernels = groups.by_kernel(record.own)
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
    simulated = [name for name, runs in kernels.items() if any(run.receipt and run.receipt.simulated for run in runs)]
    if simulated:
        parts.append(f"{len(simulated):,} of them simulated")
    reported = [", ".join(parts)]
    if by[Status.NOT_RUN]:
        reported.append(f"{units.counted(len(by[Status.NOT_RUN]), 'further kernel')} could not be run here")
    reported += _power([run for run in record.own if run.accuracy.calls])
    classes = dict.fromkeys(name for run in record.own for name in run.accuracy.uncovered)
    if classes:
        shown = "; ".join(list(classes)[:_MOST_CLASSES])
        more = len(classes) - _MOST_CLASSES
        reported.append(f"No case reached these classes: {shown}" + (f" and {more:,} more" if more > 0 else ""))
    return Answer("Right?", groups.worst(ended.values()), tuple(reported))


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
    text = f"judged on {units.counted(found.calls, 'call')} in {units.counted(found.cases, 'case')}"
    if found.rarest:
        text += f"; a fault in one of {units.one_in(found.rarest)} calls would have been seen with 95 %"
    if found.covered:
        text += f"; {len(found.covered):,} classes of inputs reached"
    if found.uncovered:
        text += f"; classes not reached: {', '.join(found.uncovered)}"
    return text


def _layers(record: Record) -> Answer | None:
    if not record.layers:
        return None
    statuses = [layer.status for layer in record.layers]
    text = (
        f"{statuses.count(Status.PASS):,} of {units.counted(len(statuses), 'layer')} of the weights hold their bounds"
    )
    return Answer("Weights?", groups.worst(statuses), (text,))


def _note(record: Record) -> Answer | None:
    """What of the model is not applied to its weights."""
    return Answer("Not applied?", Status.NOT_RUN, (record.weights_note,)) if record.weights_note else None


def _fast(record: Record) -> Answer | None:
    best = [groups.best_variant(runs) for runs in groups.by_key(groups.right(record)).values()]
    parts = [groups.mean(groups.part(run.performance.cold or run.performance.hot) for run in runs) for runs in best]
    reached = [part for part in parts if part is not None]
    measured = [run for run in record.runs if run.performance.cold or run.performance.hot]
    if not reached:
        if any(figure.footing.too_noisy for figure in groups.figures(groups.sound(record))):
            text = "How close kernels come to the machine's limits is not known: the figures are too noisy"
            return Answer("How fast?", Status.AMBIGUOUS, (text,))
        if measured and all(run.peer for run in measured):
            return Answer("How fast?", Status.NOT_RUN, ("Only kernels of other projects were measured",))
        reason = _unmeasured(record)
        return Answer("How fast?", Status.NOT_RUN, (f"Nothing was measured: {reason}",)) if reason else None
    span = (
        units.percent(min(reached)) if len(reached) == 1 else f"{100 * min(reached):.0f} to {100 * max(reached):.0f} %"
    )
    who = (
        "The best kernel reaches"
        if len(reached) == 1
        else f"The best kernels of {len(reached):,} ops and formats reach"
    )
    text = f"{who} {span} of what this machine can do"
    return Answer("How fast?", groups.worst(run.performance.status for run in measured), (text,))


def _unmeasured(record: Record) -> str:
    """Why nothing was: what a simulator ran has no speed, whatever else some shapes lack; else what kept most of the
    Runs from it whose values were judged, those of drawn cases last, which have no speed anywhere."""
    left_out = [run for run in record.runs if run.performance.status is Status.NOT_RUN]
    simulated = [run for run in left_out if run.performance.cause is Cause.SIMULATOR]
    devices = groups.simulated(record)
    if devices and not simulated:
        return f"{' and '.join(devices)} was simulated: it has no speed"
    ran = [run for run in left_out if run.accuracy.status is not Status.NOT_RUN]
    listed = [run for run in ran if run.workload.axes]
    return next(iter(groups.causes(simulated or listed or ran or left_out, "performance")), "")


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
    reported = [f"Cross-validated: {', '.join(parts)}"]
    timed = [each for _, each in done if each.speedup is not None]
    if timed:
        strict = sum(each.migration_recommended for each in timed)
        speed = (
            f"Of {units.counted(len(timed), 'comparison')} in speed, the strict rule recommends migration in {strict:,}"
        )
        ruled = [each.migration_within_tenth for each in timed if each.migration_within_tenth is not None]
        if ruled:
            speed += f", the lenient one (no more than a tenth slower) in {sum(ruled):,}"
        reported.append(speed)
    return Answer("Beside others?", groups.worst(run.cross.status for run, _ in done), tuple(reported))


def _others(record: Record) -> Answer | None:
    """Memory, cross-validation and speed, where one of them failed."""
    reported = []
    for dimension in DIMENSIONS[1:]:
        failed = dict.fromkeys(run.kernel for run in record.own if run.verdict(dimension).failed)
        if failed:
            reported.append(
                f"{units.counted(len(failed), 'kernel')} {'fails' if len(failed) == 1 else 'fail'} in {dimension}"
            )
    return Answer("What else failed?", Status.FAIL, tuple(reported)) if reported else None


def _peers(record: Record) -> Answer | None:
    """Other projects' kernels that failed beside those that were asked about."""
    own = {run.id for run in record.own}
    failed = {
        dimension: len({run.kernel for run in record.runs if run.id not in own and run.verdict(dimension).failed})
        for dimension in DIMENSIONS
    }
    if not any(failed.values()):
        return None
    found = ", ".join(f"{count:,} in {dimension}" for dimension, count in failed.items() if count)
    return Answer("Peers?", Status.NOT_RUN, (f"Of other projects' kernels, which do not count here, fail: {found}",))


def doubts(record: Record) -> list[Doubt]:
    """What is AMBIGUOUS, by reason; the commonest first."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in record.own:
        for dimension in DIMENSIONS:
            verdict = run.verdict(dimension)
            if verdict.status is Status.AMBIGUOUS:
                found.setdefault((dimension, _FIGURE.sub("#", verdict.reason)), []).append(run)
    made = [Doubt(dimension, runs[0].verdict(dimension).reason, tuple(runs)) for (dimension, _), runs in found.items()]
    return sorted(made, key=lambda doubt: -len(doubt.runs))


def _doubted(record: Record) -> Answer | None:
    found = doubts(record)
    shaky = [run for run in record.runs if groups.doubted(run)]
    reported = list(_noise(record))
    if shaky:
        reported.append(
            f"{units.counted(len(shaky), 'figure')} of {_measured(record):,} Runs are not shown, because a guard "
            "doubts them"
        )
    if found:
        runs = dict.fromkeys(run.id for doubt in found for run in doubt.runs)
        reported.append(f"{units.counted(len(runs), 'Run')} of {len(record.own):,} could not be decided")
        reported += [
            f"{len(doubt.runs):,} in {doubt.dimension}, such as: {sentence(doubt.reason)}"
            for doubt in found[:_MOST_DOUBTS]
        ]
        if len(found) > _MOST_DOUBTS:
            reported.append(f"{units.counted(len(found) - _MOST_DOUBTS, 'further reason')}: see the report")
    if not reported:
        return Answer("Not believed?", Status.PASS, ("No verdict is AMBIGUOUS, no figure is doubted or too noisy",))
    return Answer("Not believed?", Status.AMBIGUOUS, tuple(reported))


def _noise(record: Record) -> Iterator[str]:
    """How many figures are too noisy, and whether the machine was busy."""
    found = outcome(record)
    if found.noisy:
        verb = "is" if found.noisy == 1 else "are"
        yield (
            f"{found.noisy:,} of {units.counted(found.figures, 'figure')} {verb} too noisy (95 % interval wider than "
            f"±{100 * TOO_NOISY:.0f} %) and not compared with others"
        )
    crowd = load.crowd(record)
    if crowd:
        yield crowd


def _unseen(record: Record) -> Answer | None:
    reported = unseen.headline(record)
    return Answer("Not judged?", Status.NOT_RUN, (reported,)) if reported else None


def _measured(record: Record) -> int:
    return sum(run.performance.cold is not None or run.performance.hot is not None for run in record.runs)


def in_words(given: Iterable[str]) -> str:
    """The sentences in a row, each with its full stop."""
    return " ".join(each if each.endswith((".", "!", "?")) else f"{each}." for each in given)
