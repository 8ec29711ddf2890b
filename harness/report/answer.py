"""The main results in sentences: correctness, speed, doubts and their reasons.

The terminal, the page and the Markdown report begin with the same sentences.
"""

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
    """A question, its status and the sentences that answer it."""

    question: str
    status: Status
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Doubt:
    """Verdicts of one dimension that are AMBIGUOUS for the same reason; numbers in the reason may differ."""

    dimension: str
    reason: str
    """The reason of the first one."""
    runs: tuple[Run, ...]


def answers(record: Record) -> list[Answer]:
    """The answers in the order of the report, without empty ones."""
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
    parts = [f"{len(by[Status.PASS]):,} of {units.counted(judged, 'kernel')} {'is' if judged == 1 else 'are'} correct"]
    parts += [
        f"{len(found):,} {word}" for found, word in ((wrong, "failed"), (by[Status.AMBIGUOUS], "ambiguous")) if found
    ]
    simulated = [name for name, runs in kernels.items() if any(run.receipt and run.receipt.simulated for run in runs)]
    if simulated:
        parts.append(f"{len(simulated):,} of them simulated")
    reported = [", ".join(parts)]
    if by[Status.NOT_RUN]:
        reported.append(f"{units.counted(len(by[Status.NOT_RUN]), 'more kernel')} could not run here")
    reported += _power([run for run in record.own if run.accuracy.calls])
    classes = dict.fromkeys(name for run in record.own for name in run.accuracy.uncovered)
    if classes:
        shown = "; ".join(list(classes)[:_MOST_CLASSES])
        more = len(classes) - _MOST_CLASSES
        reported.append(f"No case reached these classes: {shown}" + (f" and {more:,} more" if more > 0 else ""))
    return Answer("Correct?", groups.worst(ended.values()), tuple(reported))


def _power(drawn: Sequence[Run]) -> list[str]:
    rarest = [run.accuracy.rarest for run in drawn if run.accuracy.rarest]
    if not rarest:
        return []
    calls = min(run.accuracy.calls for run in drawn)
    fault = f"a fault in one of {units.one_in(max(rarest))} calls is detected with 95 % probability"
    return [f"Each was judged on {units.counted(calls, 'call')} or more: {fault}"]


def power(run: Run) -> str:
    """The calls and cases on which the accuracy of a Run was judged; "" if no cases were drawn."""
    found = run.accuracy
    if not found.calls:
        return ""
    text = f"judged on {units.counted(found.calls, 'call')} in {units.counted(found.cases, 'case')}"
    if found.rarest:
        text += f"; a fault in one of {units.one_in(found.rarest)} calls is detected with 95 % probability"
    if found.covered:
        text += f"; {units.counted(len(found.covered), 'class', 'classes')} of inputs reached"
    if found.uncovered:
        text += f"; classes not reached: {', '.join(found.uncovered)}"
    return text


def _layers(record: Record) -> Answer | None:
    if not record.layers:
        return None
    statuses = [layer.status for layer in record.layers]
    text = (
        f"{statuses.count(Status.PASS):,} of {units.counted(len(statuses), 'layer')} of the weights: error within bound"
    )
    return Answer("Weights?", groups.worst(statuses), (text,))


def _note(record: Record) -> Answer | None:
    """Operations of the model that are not applied to its weights."""
    return Answer("Not applied?", Status.NOT_RUN, (record.weights_note,)) if record.weights_note else None


def _fast(record: Record) -> Answer | None:
    best = [groups.best_variant(runs) for runs in groups.by_key(groups.right(record)).values()]
    parts = [groups.mean(groups.part(run.performance.cold or run.performance.hot) for run in runs) for runs in best]
    reached = [part for part in parts if part is not None]
    measured = [run for run in record.runs if run.performance.cold or run.performance.hot]
    if not reached:
        if any(figure.footing.too_noisy for figure in groups.figures(groups.sound(record))):
            text = "The figures are too noisy to compare with the ceilings of the machine"
            return Answer("How fast?", Status.AMBIGUOUS, (text,))
        if measured and all(run.peer for run in measured):
            return Answer("How fast?", Status.NOT_RUN, ("Only peers were measured",))
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
    text = f"{who} {span} of the measured ceiling"
    return Answer("How fast?", groups.worst(run.performance.status for run in measured), (text,))


def _unmeasured(record: Record) -> str:
    """Why no Run was measured: a simulator, or the most common cause among the Runs that were judged.

    Runs of drawn cases count last, because they are never measured.
    """
    left_out = [run for run in record.runs if run.performance.status is Status.NOT_RUN]
    simulated = [run for run in left_out if run.performance.cause is Cause.SIMULATOR]
    devices = groups.simulated(record)
    if devices and not simulated:
        return f"{' and '.join(devices)} was simulated, and a simulator has no speed"
    ran = [run for run in left_out if run.accuracy.status is not Status.NOT_RUN]
    listed = [run for run in ran if run.workload.axes]
    return next(iter(groups.causes(simulated or listed or ran or left_out, "performance")), "")


def _beside(record: Record) -> Answer | None:
    """Comparisons with peers and, separately, with references; and the results of both migration rules."""
    done = [(run, each) for run in record.runs for each in run.cross.peers if each.match is not None]
    if not done:
        return None
    shipped = {run.kernel for run, each in done if not each.reference}
    alone = {run.kernel for run, each in done} - shipped
    parts = [f"{units.counted(len(shipped), 'kernel')} with peers"] if shipped else []
    if alone:
        names = " and ".join(dict.fromkeys(each.peer for run, each in done if run.kernel in alone))
        parts.append(f"{units.counted(len(alone), 'kernel')} with {names} only")
    reported = [f"Compared: {', '.join(parts)}"]
    timed = [each for _, each in done if each.speedup is not None]
    if timed:
        strict = sum(each.migration_recommended for each in timed)
        speed = (
            f"Of {units.counted(len(timed), 'comparison')} of speed, the strict rule recommends migration in {strict:,}"
        )
        ruled = [each.migration_within_tenth for each in timed if each.migration_within_tenth is not None]
        if ruled:
            speed += f", the lenient one (at most 10 % slower) in {sum(ruled):,}"
        reported.append(speed)
    return Answer("Against peers?", groups.worst(run.cross.status for run, _ in done), tuple(reported))


def _others(record: Record) -> Answer | None:
    """Failures in performance, memory and cross."""
    reported = []
    for dimension in DIMENSIONS[1:]:
        failed = dict.fromkeys(run.kernel for run in record.own if run.verdict(dimension).failed)
        if failed:
            reported.append(
                f"{units.counted(len(failed), 'kernel')} {'fails' if len(failed) == 1 else 'fail'} in {dimension}"
            )
    return Answer("What else failed?", Status.FAIL, tuple(reported)) if reported else None


def _peers(record: Record) -> Answer | None:
    """Peers that failed beside the kernels of this Record."""
    own = {run.id for run in record.own}
    failed = {
        dimension: len({run.kernel for run in record.runs if run.id not in own and run.verdict(dimension).failed})
        for dimension in DIMENSIONS
    }
    if not any(failed.values()):
        return None
    found = ", ".join(f"{count:,} in {dimension}" for dimension, count in failed.items() if count)
    return Answer("Peers?", Status.NOT_RUN, (f"Failed kernels of peers, which do not decide the verdict: {found}",))


def doubts(record: Record) -> list[Doubt]:
    """The AMBIGUOUS verdicts by reason, the most common reason first."""
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
        one, all_runs = len(shaky) == 1, units.counted(_measured(record), "Run")
        reported.append(
            f"{units.counted(len(shaky), 'figure')} of {all_runs} {'is' if one else 'are'} not shown, because a guard "
            f"questioned {'it' if one else 'them'}"
        )
    if found:
        runs = dict.fromkeys(run.id for doubt in found for run in doubt.runs)
        reported.append(f"No decision for {units.counted(len(runs), 'Run')} of {len(record.own):,}")
        reported += [
            f"{len(doubt.runs):,} in {doubt.dimension}, such as: {sentence(doubt.reason)}"
            for doubt in found[:_MOST_DOUBTS]
        ]
        if len(found) > _MOST_DOUBTS:
            reported.append(f"{units.counted(len(found) - _MOST_DOUBTS, 'more reason')}: see the report")
    if not reported:
        return Answer("Doubted?", Status.PASS, ("Every verdict is decided, and no figure is too noisy",))
    return Answer("Doubted?", Status.AMBIGUOUS, tuple(reported))


def _noise(record: Record) -> Iterator[str]:
    """The number of figures that are too noisy, and whether the machine was busy."""
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
    """The sentences as one text, each with its full stop."""
    return " ".join(each if each.endswith((".", "!", "?")) else f"{each}." for each in given)
