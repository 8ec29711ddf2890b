"""Cold and hot: each measured Run as a part of the ceiling that limits it, one plot for each op, format and dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritmark.harness.record import Record, Run
from tritmark.harness.report import groups
from tritmark.harness.report.plot import COLD, GRID, HOT, INK, MUTED, svg
from tritmark.harness.report.section import Section
from tritmark.harness.report.text import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_RUNS = 32
_MOST_PLOTS = 16
_LINE_PT = 20
_HEAD_PT = 17
_BOTTOM_PT = 34
_TOP_PT = 4


def _by_shape(runs: list[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(groups.place(run.workload), []).append(run)
    return found


def _height(shapes: dict[str, list[Run]]) -> float:
    return _BOTTOM_PT + _TOP_PT + sum(_HEAD_PT + _LINE_PT * len(runs) for runs in shapes.values())


def _draw(figure: Figure, shapes: dict[str, list[Run]]) -> None:
    height = _height(shapes)
    axes = figure.add_axes((0.24, _BOTTOM_PT / height, 0.72, 1 - (_BOTTOM_PT + _TOP_PT) / height))
    y, ticks, names = 0.0, [], []
    longest = 1.0
    for shape, runs in shapes.items():
        y += _HEAD_PT
        axes.annotate(label(shape, 48), (0, y - 3), xytext=(3, 0), textcoords="offset points", va="baseline", weight="bold")
        for run in runs:
            ticks.append(y + _LINE_PT / 2)
            threads = f" x{run.threads}" if len({other.threads for other in runs}) > 1 else ""
            names.append(label(run.variant, 16) + threads)
            for footing, place, colour in ((run.performance.cold, 6, COLD), (run.performance.hot, 14, HOT)):
                if footing is not None:
                    _bar(axes, y + place, 100 * footing.against.fraction.median, colour)
                    longest = max(longest, footing.against.fraction.median)
            y += _LINE_PT
    axes.set(ylim=(y, 0), xlim=(0, 100 * min(longest, 2.0) * 1.12), yticks=ticks, yticklabels=names)
    axes.axvline(100, color=INK, linewidth=1)
    axes.grid(axis="x", color=GRID)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_color(MUTED)
    axes.set_xlabel("percent of the measured ceiling")


def _bar(axes: Axes, y: float, percent: float, colour: str) -> None:
    axes.barh(y, percent, height=7, color=colour)
    axes.annotate(f"{percent:.0f}", (percent, y), xytext=(2, 0), textcoords="offset points", va="center", fontsize=7.5)


def _group(number: int, key: tuple[str, ...], runs: list[Run]) -> dict[str, Any]:
    drawn = runs if len(runs) <= _MOST_RUNS else groups.fastest(runs)[:_MOST_RUNS]
    shapes = _by_shape(drawn)
    title = f"Percent of the ceiling, cold and hot, of {' '.join(key)}; the table beside it has the same figures"
    plot = None
    if number < _MOST_PLOTS:
        plot = svg(f"temperature{number}", title, _height(shapes), lambda figure: _draw(figure, shapes))
    runs = [run for found in _by_shape(runs).values() for run in found]
    return {"key": key, "runs": runs, "best": groups.best_variant(runs), "plot": plot, "drawn": len(drawn)}


def _context(record: Record) -> dict[str, Any] | None:
    found = groups.by_key(groups.sound(record))
    if not found:
        return None
    several = len({device for device, *_ in found}) > 1
    return {"found": [_group(number, key if several else key[1:], runs) for number, (key, runs) in enumerate(found.items())]}


SECTION = Section("temperature", "Cold and hot", "temperature.html", _context)
