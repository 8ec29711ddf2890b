"""Cold and hot: each measured Run in percent of its ceiling, with one plot for each op, format and dtype."""

from __future__ import annotations

from typing import Any

from tritmark.harness.record import Record, Run
from tritmark.harness.report import chart
from tritmark.harness.report.section import Section
from tritmark.harness.text import groups

_MOST_RUNS = 32
_MOST_PLOTS = 16


def _by_shape(runs: list[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(groups.place(run.workload), []).append(run)
    return found


def _bar(run: Run, several: bool) -> chart.Bar:
    cold, hot = (
        None if (part := groups.part(footing)) is None else 100 * part
        for footing in (run.performance.cold, run.performance.hot)
    )
    return chart.Bar(f"{run.variant} x{run.threads}" if several else run.variant, cold, hot)


def _group(number: int, key: tuple[str, ...], runs: list[Run]) -> dict[str, Any]:
    drawn = runs if len(runs) <= _MOST_RUNS else groups.fastest(groups.steady(runs))[:_MOST_RUNS]
    shapes = _by_shape(drawn)
    title = f"Percent of the ceiling, cold and hot, of {' '.join(key)}; the table beside it has the same figures"
    pairs = [
        (shape, [_bar(run, len({other.threads for other in same}) > 1) for run in same])
        for shape, same in shapes.items()
    ]
    plot = chart.bars(pairs, title) if number < _MOST_PLOTS else None
    steady = groups.steady(runs)
    runs = [run for found in _by_shape(runs).values() for run in found]
    best = groups.best_variant(steady) if steady else []
    return {"key": key, "runs": runs, "best": best, "plot": plot, "drawn": len(drawn)}


def _context(record: Record) -> dict[str, Any] | None:
    found = groups.by_key(groups.sound(record))
    if not found:
        return None
    several = len({device for device, *_ in found}) > 1
    return {
        "found": [_group(number, key if several else key[1:], runs) for number, (key, runs) in enumerate(found.items())]
    }


SECTION = Section(
    "temperature", "Cold and hot", "temperature.html", _context, about="time and percent of the ceiling of each Run"
)
