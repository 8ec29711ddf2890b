"""How the figures come about, and what this Record does not say."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tritmark.harness.record import Record, Status, Verdict
from tritmark.harness.report.section import Section

_DIMENSIONS = (("accuracy", "Accuracy"), ("performance", "Performance"), ("memory", "Memory"), ("cross", "Cross-validation"))
_MOST_REASONS = 12


def _left_out(record: Record) -> list[tuple[str, str, int]]:
    """Dimension, reason, number of Runs; the commonest first."""
    found: Counter[tuple[str, str]] = Counter()
    for run in record.runs:
        for field, name in _DIMENSIONS:
            verdict: Verdict = getattr(run, field)
            if verdict.status is Status.NOT_RUN:
                found[name, verdict.reason] += 1
    return [(name, reason, runs) for (name, reason), runs in found.most_common()]


def _context(record: Record) -> dict[str, Any]:
    timings = [footing.timing for run in record.runs for footing in (run.performance.cold, run.performance.hot) if footing is not None]
    left_out = _left_out(record)
    judged = [run for run in record.runs if run.accuracy.guards]
    return {
        "isolated": bool(judged) and all("process" in run.accuracy.guards for run in judged),
        "clocks": sorted({timing.clock for timing in timings}),
        "stopped": sorted(Counter(timing.stopped for timing in timings).items()),
        "figures": len(timings),
        "left_out": left_out[:_MOST_REASONS],
        "more": len(left_out) - min(len(left_out), _MOST_REASONS),
        "lanes": [lane for lane in record.lanes if not lane.ran],
    }


SECTION = Section("method", "Method and limits", "method.html", _context)
