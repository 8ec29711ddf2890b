"""Individual launches compared with the same launches in a graph, interleaved."""

from __future__ import annotations

from typing import Any

from tritmark.harness.record import Record
from tritmark.harness.report import chart
from tritmark.harness.report.section import Section
from tritmark.harness.text import groups, units

_MOST_ROWS = 60
_MOST_TABLE = 200


def _context(record: Record) -> dict[str, Any] | None:
    found = [(run, run.plain) for run in record.runs if run.plain is not None and run.plain.low > 0]
    if not found:
        return None
    ordered = sorted(found, key=lambda both: (both[1].too_noisy, -both[1].median))
    drawn: dict[str, list[chart.ForestEntry]] = {}
    for run, ratio in [both for both in ordered if not both[1].too_noisy][:_MOST_ROWS]:
        heading = f"{run.op} {run.format} {run.dtype} {run.variant}"
        drawn.setdefault(heading, []).append(
            chart.ForestEntry(heading, groups.shape(run.workload), ratio, units.times(ratio))
        )
    entries = [entry for under in drawn.values() for entry in under]
    title = f"Individual launches over graphs for {units.counted(len(entries), 'Run')}; the table has the same figures"
    return {
        "plot": chart.forest(entries, title) if entries else None,
        "rows": ordered[:_MOST_TABLE],
        "drawn": len(entries),
        "all": len(found),
    }


SECTION = Section(
    "graph",
    "Graph against individual launches",
    "graph.html",
    _context,
    about="time of individual launches over the time in a graph",
)
