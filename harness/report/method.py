"""The measuring method, and the limits of this Record."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tritmark.harness.record import Record
from tritmark.harness.report.section import Section


def _context(record: Record) -> dict[str, Any]:
    timings = [
        footing.timing
        for run in record.runs
        for footing in (run.performance.cold, run.performance.hot)
        if footing is not None
    ]
    judged = [run for run in record.runs if run.accuracy.guards]
    return {
        "isolated": bool(judged) and all("process" in run.accuracy.guards for run in judged),
        "clocks": sorted({timing.clock for timing in timings}),
        "stopped": sorted(Counter(timing.stopped for timing in timings).items()),
        "figures": len(timings),
        "lanes": [lane for lane in record.lanes if not lane.ran],
    }


SECTION = Section(
    "method", "Method and limits", "method.html", _context, about="how figures are measured, and their limits"
)
