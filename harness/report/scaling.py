"""Thread scaling: each kernel on several threads, interleaved with itself on one thread."""

from __future__ import annotations

from typing import Any

from tritmark.harness.record import Record, Run
from tritmark.harness.report import chart
from tritmark.harness.report.section import Section
from tritmark.harness.text import groups, units

_MOST_PLOTS = 8
_MOST_LINES = 8
_MOST_ROWS = 120


def _point(threads: int, low: float, middle: float, high: float) -> chart.Point:
    return chart.Point(
        threads,
        middle,
        low,
        high,
        f"{units.counted(threads, 'thread')}, {units.number(middle)}x ({units.number(low)} to {units.number(high)})",
    )


def _line(run: Run) -> tuple[str, list[chart.Point]]:
    taken = [each for each in run.scaling if each.speedup.low > 0 and not each.speedup.too_noisy]
    points = [_point(each.threads, each.speedup.low, each.speedup.median, each.speedup.high) for each in taken]
    if all(point.x != 1 for point in points):
        points = [chart.Point(1, 1, 1, 1, "1 thread, 1x: the base of the speed-up"), *points]
    return run.variant, points


def _group(heading: str, runs: list[Run]) -> dict[str, Any]:
    best = sorted(runs, key=lambda run: -run.scaling[-1].speedup.median)[:_MOST_LINES]
    drawn = [run for run in runs if run in best]
    title = f"Speed-up with threads of {heading}; the table has the same figures"
    return {
        "heading": heading,
        "plot": chart.lines([_line(run) for run in drawn], title, ("threads", "speed-up over one thread"), ideal=True),
        "left_out": len(runs) - len(drawn),
    }


def _compares(run: Run) -> bool:
    """Whether a figure on several threads is precise enough to draw."""
    return any(each.threads > 1 and each.speedup.low > 0 and not each.speedup.too_noisy for each in run.scaling)


def _context(record: Record) -> dict[str, Any] | None:
    runs = [run for run in record.runs if any(each.threads > 1 and each.speedup.low > 0 for each in run.scaling)]
    if not runs:
        return None
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(f"{run.op} {run.format} {run.dtype}, {groups.place(run.workload)}", []).append(run)
    drawn = {
        heading: reported for heading, same in found.items() if (reported := [run for run in same if _compares(run)])
    }
    plots = [_group(heading, same) for heading, same in list(drawn.items())[:_MOST_PLOTS]]
    rows = [(run, each) for run in runs for each in run.scaling]
    return {
        "plots": plots,
        "more": len(found) - len(plots),
        "rows": rows[:_MOST_ROWS],
        "rows_more": max(0, len(rows) - _MOST_ROWS),
    }


SECTION = Section("threads", "Threads", "scaling.html", _context, about="speed-up over one thread")
