"""Time against one axis of the shape, such as the batch M, with all other axes equal; and the crossovers, where
another variant becomes the fastest."""

from __future__ import annotations

from itertools import pairwise
from math import exp, log
from typing import Any

from tritmark.harness.record import Measurement, Record, Run, Timing
from tritmark.harness.report import chart
from tritmark.harness.report.section import Section
from tritmark.harness.text import groups, units

_MOST_PLOTS = 8
_MOST_LINES = 8
_MOST_POINTS = 400
_FEWEST = 3
"""Least number of values for a curve."""


def _footing(run: Run) -> Measurement | None:
    return run.performance.cold or run.performance.hot


def curves(runs: list[Run]) -> dict[tuple[str, str], dict[str, dict[int, Run]]]:
    """(heading, axis) to variant to value of the axis to Run, for Runs that differ only in that axis."""
    found: dict[tuple[str, str], dict[str, dict[int, Run]]] = {}
    for run in runs:
        axes = run.workload.axes
        for name, value in axes.items():
            others = " ".join(f"{each}={size}" for each, size in axes.items() if each != name)
            which = "cold" if run.performance.cold else "hot"
            what = " ".join(f"{run.op} {run.format} {run.dtype} {others}".split())
            how = (
                f"{run.workload.family} {run.workload.layout}",
                run.device,
                units.counted(run.threads, "thread"),
                which,
            )
            line = found.setdefault((", ".join((what, *how)), name), {}).setdefault(run.variant, {})
            line.setdefault(value, run)
    kept = {}
    for place, lines in found.items():
        long = {variant: line for variant, line in lines.items() if len(line) >= _FEWEST}
        if long:
            kept[place] = long
    return kept


def _timing(run: Run) -> Timing:
    footing = _footing(run)
    assert footing is not None
    return footing.timing


def _ns(run: Run) -> float:
    return _timing(run).median_ns


def crossovers(lines: dict[str, dict[int, Run]]) -> list[tuple[str, str, float, int, int]]:
    """Where the fastest variant changes and the intervals do not overlap on either side.

    Each is (old, new, estimated value, measured value below, measured value above). The estimate is the intersection of
    the straight lines through the logarithms of both variants' times.
    """
    values = sorted({value for line in lines.values() for value in line})
    best = {value: min((line[value] for line in lines.values() if value in line), key=_ns).variant for value in values}
    found = []
    for left, right in pairwise(values):
        old, new = best[left], best[right]
        if old == new or not all(value in lines[name] for name in (old, new) for value in (left, right)):
            continue
        if _timing(lines[old][left]).high_ns >= _timing(lines[new][left]).low_ns:
            continue
        if _timing(lines[new][right]).high_ns >= _timing(lines[old][right]).low_ns:
            continue
        before = log(_ns(lines[new][left]) / _ns(lines[old][left]))
        after = log(_ns(lines[new][right]) / _ns(lines[old][right]))
        share = before / (before - after)
        found.append((old, new, exp(log(left) + share * log(right / left)), left, right))
    return found


def _line(variant: str, line: dict[int, Run], axis: str) -> tuple[str, list[chart.Point]]:
    points = []
    for value, run in sorted(line.items()):
        timing = _timing(run)
        tip = (
            f"{axis}={value}, {units.time(timing.median_ns)} ({units.time(timing.low_ns)} to "
            f"{units.time(timing.high_ns)})"
        )
        points.append(chart.Point(value, timing.median_ns, timing.low_ns, timing.high_ns, tip))
    return variant, points


def _plot(place: tuple[str, str], lines: dict[str, dict[int, Run]]) -> dict[str, Any]:
    heading, axis = place
    by_time = sorted(lines.items(), key=lambda item: groups.mean(_ns(run) for run in item[1].values()) or 0.0)
    # In the order of the Record, so that a variant has the same colour in most plots.
    fastest = {variant for variant, _ in by_time[:_MOST_LINES]}
    drawn = [_line(variant, line, axis) for variant, line in lines.items() if variant in fastest]
    values = sorted({value for line in lines.values() for value in line})
    title = f"Time against {axis} of {heading}; the table below has the same figures"
    return {
        "heading": heading,
        "axis": axis,
        "plot": chart.lines(drawn, title, (axis, "time"), duration=True),
        "values": values,
        "rows": [
            (variant, [_ns(line[value]) if value in line else None for value in values]) for variant, line in by_time
        ],
        "crossovers": crossovers(lines),
        "left_out": max(0, len(lines) - _MOST_LINES),
    }


def _context(record: Record) -> dict[str, Any] | None:
    steady = groups.steady(groups.sound(record))
    timed = [run for run in steady if (footing := _footing(run)) is not None and footing.timing.low_ns > 0]
    found = curves([run for run in timed if all(value > 0 for value in run.workload.axes.values())])
    if not found:
        return None
    # Curves with several variants come first, then those with the most points.
    ordered = sorted(
        found.items(), key=lambda item: (-(len(item[1]) > 1), -max(len(line) for line in item[1].values()))
    )
    kept: list[dict[str, Any]] = []
    points = 0
    for place, lines in ordered[:_MOST_PLOTS]:
        points += sum(map(len, lines.values()))
        if kept and points > _MOST_POINTS:
            break
        kept.append(_plot(place, lines))
    return {"plots": kept, "more": len(ordered) - len(kept)}


SECTION = Section(
    "batch", "Time against batch and size", "batch.html", _context, about="time along one axis of the shape"
)
