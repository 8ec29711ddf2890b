"""The summary: the verdict, what ran on which machine, and the best kernels in percent of the ceilings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tritmark.harness.record import TOO_NOISY, Record, Run, Status, Verdict
from tritmark.harness.report import answer, compare, load, machine, verdicts
from tritmark.harness.report.section import PageContext, Section
from tritmark.harness.text import groups, units, unseen
from tritmark.harness.text.outcome import FAILED, outcome

_DIMENSIONS = (
    ("accuracy", "Accuracy"),
    ("performance", "Performance"),
    ("memory", "Memory"),
    ("cross", "Cross-validation"),
)
_MOST_FAILURES = 20
_MOST_REASONS = 12


def headline(record: Record) -> str:
    """One line with the result of the Record."""
    found = outcome(record)
    parts = [_count(counts, noun) for counts, noun in ((found.runs, "Run"), (found.layers, "layer")) if counts]
    if found.noisy:
        parts.append(f"{found.noisy:,} of {units.counted(found.figures, 'figure')} too noisy")
    line = ", ".join(parts) or "nothing ran"
    return line[0].upper() + line[1:]


def _count(counts: Mapping[Status, int], noun: str) -> str:
    total = units.counted(sum(counts.values()), noun)
    bad = sum(counts.get(status, 0) for status in FAILED)
    doubts = [f"{counts[doubt]:,} {doubt.value}" for doubt in (Status.AMBIGUOUS, Status.NOT_RUN) if counts.get(doubt)]
    text = f"{bad:,} of {total} failed" if bad else f"no failure in {total}"
    return f"{text} ({', '.join(doubts)})" if doubts else text


def status(record: Record) -> str:
    """PASS, FAIL, AMBIGUOUS, NOT RUN, or INCOMPLETE for an unfinished Record without failures."""
    found = outcome(record).status
    return found.value.upper() if record.complete or found is Status.FAIL else "INCOMPLETE"


def _run_verdicts(record: Record) -> list[Status]:
    return [groups.verdict(run) for run in record.own]


def _tally(name: str, statuses: list[Status]) -> dict[str, Any]:
    return {"name": name, "counts": [statuses.count(status) for status in groups.WORST_FIRST]}


def _tallies(record: Record) -> list[dict[str, Any]]:
    rows = []
    if record.runs:
        rows.append(_tally("Runs", _run_verdicts(record)))
        for field, name in _DIMENSIONS:
            verdicts: list[Verdict] = [getattr(run, field) for run in record.own]
            rows.append(_tally(name, [verdict.status for verdict in verdicts]))
    own = {run.id for run in record.own}
    others = [run for run in record.runs if run.id not in own]
    if others:
        rows.append(_tally("Kernels of peers, not counted", [groups.verdict(run) for run in others]))
    if record.layers:
        rows.append(_tally("Layers of the weights", [layer.status for layer in record.layers]))
    return rows


def _best(runs: list[Run]) -> dict[str, Any]:
    best = groups.best_variant(runs)
    largest = groups.largest(best)
    footings = [(run.performance.cold, run.performance.hot) for run in best]
    cold = [groups.part(footing) for footing, _ in footings]
    hot = [groups.part(footing) for _, footing in footings]
    return {
        "run": largest,
        "footings": (largest.performance.cold, largest.performance.hot),
        "shapes": len({run.workload.id for run in best}),
        "ceilings": sorted({footing.against.ceiling for pair in footings for footing in pair if footing}),
        "cold": _spread(cold),
        "hot": _spread(hot),
        "ambiguous": any(run.performance.status is Status.AMBIGUOUS for run in best),
    }


def _spread(fractions: list[float | None]) -> dict[str, float | None]:
    taken = [fraction for fraction in fractions if fraction is not None]
    return {"mean": groups.mean(taken), "low": min(taken, default=None), "high": max(taken, default=None)}


def _beside(record: Record, given: PageContext) -> dict[str, Any]:
    left_out = groups.not_run(record.runs)
    keys = groups.by_key(record.runs)
    return {
        "status": status(record),
        "regressed": _regressed(record, given),
        "noise": compare.noise(record),
        "too_noisy": TOO_NOISY,
        "headline": headline(record),
        "statuses": groups.WORST_FIRST,
        "tallies": _tallies(record),
        "answers": answer.answers(record),
        "doubts": answer.doubts(record),
        "not_judged": [unseen.line(each) for each in record.not_judged],
        "left_out": left_out[:_MOST_REASONS],
        "more_left_out": max(0, len(left_out) - _MOST_REASONS),
        "failed": [kernel for kernel in groups.kernels(record) if kernel.status in {Status.FAIL, Status.ERROR}],
        "failed_layers": [layer for layer in record.layers if layer.status is not Status.PASS],
        "best": [
            {**_best(runs), "right": groups.of_which_right(keys[key])}
            for key, runs in groups.by_key(groups.right(record)).items()
        ],
        "several": len(groups.devices(record)) > 1,
        "most": _MOST_FAILURES,
        "machine_line": machine.one_line(record),
        "notes": verdicts.notes,
        "load": load.summary(record),
        "seconds": sum(run.seconds for run in record.runs),
    }


def _regressed(record: Record, given: PageContext) -> dict[str, str]:
    """The word for the strip, its class, and the reason."""
    if given.baseline is None:
        reason = given.no_baseline or "compare with tritmark report RECORD --against BASELINE"
        return {"word": "no baseline", "mark": "not-run", "told": reason}
    found = compare.compare(record, given.baseline)
    text = compare.summary(found, given.baseline)
    if not found.pairs:
        return {"word": "not compared", "mark": "not-run", "told": text}
    changes = {pair.change for pair in found.pairs}
    if compare.Change.SLOWER in changes:
        return {"word": "slower", "mark": "slower", "told": text}
    unsure = compare.Change.UNSURE in changes
    return {"word": "unsure" if unsure else "no", "mark": "unsure" if unsure else "pass", "told": text}


SECTION = Section("summary", "Summary", "summary.html", beside=_beside)
