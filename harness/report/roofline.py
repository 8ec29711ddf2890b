"""The roofline: each measured Run under the measured ceilings of this machine (Williams, Waterman, Patterson 2009)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from tritmark.harness.record import HOST, CeilingFacts, Record, Run, contradicted
from tritmark.harness.report.plot import GRID, INK, MARKERS, MUTED, PAPER, SERIES, svg
from tritmark.harness.report.section import Section
from tritmark.harness.text import groups, units
from tritmark.harness.text.visible import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_POINTS = 150
_PLOT_PT = 250
_AXIS_PT = 34
_LEGEND_PT = 15
_BYTES = "bytes/s"
_TEMPERATURES = ("cold", "hot")
_LETTER_PT, _LINE_PT = 4.8, 10.0
"""Width of a letter and height of a label, in points."""
_PLACES = 24
"""Positions along a line that are tried for its label."""


def _work(run: Run) -> tuple[float, float]:
    """Operations, and operations per byte of least traffic."""
    operations, nbytes = run.performance.operations, run.performance.read + run.performance.written
    return operations, operations / nbytes if nbytes else 0.0


def _drawn(runs: list[Run]) -> list[Run]:
    runs = [run for run in runs if _work(run)[1] > 0]
    return runs if len(runs) <= _MOST_POINTS else groups.fastest(groups.steady(runs))[:_MOST_POINTS]


def roofs(record: Record, device: str) -> list[CeilingFacts]:
    """The ceilings of a device: reads from each level, writes to memory, compute; the fastest first.

    Each is the best over all thread counts. Ceilings that contradict each other are left out.
    """
    found: dict[tuple[str, str], CeilingFacts] = {}
    doubted = contradicted(record.machine.ceilings)
    for ceiling in record.machine.ceilings:
        if ceiling in doubted:
            continue
        known = found.get((ceiling.name, ceiling.level))
        wanted = ceiling.name in {"read", "compute"} or (ceiling.name, ceiling.level) == ("write", "memory")
        if wanted and ceiling.device == device and ceiling.rate > 0 and (known is None or ceiling.rate > known.rate):
            found[ceiling.name, ceiling.level] = ceiling
    return sorted(found.values(), key=lambda ceiling: (ceiling.unit, -ceiling.rate))


def _row(run: Run) -> dict[str, Any]:
    operations, intensity = _work(run)
    footings = {"cold": run.performance.cold, "hot": run.performance.hot}
    speeds = {
        name: operations / footing.timing.median_ns * 1e9
        if footing and footing.timing.median_ns > 0 and not footing.timing.too_noisy
        else None
        for name, footing in footings.items()
    }
    limits = sorted({footing.against.ceiling for footing in footings.values() if footing})
    return {"run": run, "intensity": intensity, "limits": limits, **speeds}


def _draw(figure: Figure, rows: list[dict[str, Any]], ceilings: list[CeilingFacts], height: float) -> Mapping[str, str]:
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullLocator

    bottom = (height - _PLOT_PT + _AXIS_PT) / height
    axes = figure.add_axes((0.15, bottom, 0.82, 0.98 - bottom))
    axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="operations per second")
    bandwidths = [ceiling for ceiling in ceilings if ceiling.unit == _BYTES]
    peak = max((ceiling.rate for ceiling in ceilings if ceiling.unit != _BYTES), default=None)
    intensities = [row["intensity"] for row in rows]
    left, right = min(intensities) / 4, max(intensities) * 4
    if peak and bandwidths:
        # Show the ridges, unless a failed measurement puts them so far away that they would hide everything else.
        ridges = [peak / ceiling.rate for ceiling in bandwidths]
        left, right = min(left, max(min(ridges) / 2, left / 100)), max(right, min(max(ridges) * 2, right * 100))
    speeds = [row[name] for row in rows for name in ("cold", "hot") if row[name]]
    slowest = min([*speeds, *(ceiling.rate * left for ceiling in bandwidths)])
    highest = max([*speeds, peak or max((ceiling.rate * right for ceiling in bandwidths), default=0)])
    axes.set(xlim=(left, right), ylim=(slowest / 2, highest * 3))
    tips = _points(axes, rows)
    _roofs(
        axes, bandwidths, peak, [(row["intensity"], row[name]) for row in rows for name in _TEMPERATURES if row[name]]
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=9))
        axis.set_minor_locator(NullLocator())  # without it, half of the time goes to ticks that are not drawn
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.grid(which="major", color=GRID)
    figure.legend(loc="lower center", ncols=2, fontsize=9, handletextpad=0.3, columnspacing=1.2, borderaxespad=0.1)
    return tips


def _points(axes: Axes, rows: list[dict[str, Any]]) -> dict[str, str]:
    """Draw a filled marker for cold and a hollow one for hot; shape and colour show the op. Returns the tooltips."""
    tips: dict[str, str] = {}
    ops = list(dict.fromkeys(row["run"].op for row in rows))
    for number, row in enumerate(rows):
        place = ops.index(row["run"].op) % len(SERIES)
        for name, fill in (("hot", PAPER), ("cold", SERIES[place])):
            if row[name]:
                gid = f"{name}{number}"
                axes.plot(
                    [row["intensity"]],
                    [row[name]],
                    marker=MARKERS[place],
                    linestyle="none",
                    markersize=5,
                    markeredgewidth=0.9,
                    markerfacecolor=fill,
                    markeredgecolor=SERIES[place],
                    gid=gid,
                    zorder=4,
                )
                run = row["run"]
                tips[gid] = (
                    f"{run.kernel}, {groups.place(run.workload)}, {units.counted(run.threads, 'thread')}, {name}: "
                    f"{units.rate(row[name], 'OP/s')}"
                )
    for number, op in enumerate(ops):
        place = number % len(SERIES)
        axes.plot([], [], MARKERS[place], markersize=5, color=SERIES[place], label=label(op))
    return tips


def _roofs(
    axes: Axes, bandwidths: list[CeilingFacts], peak: float | None, points: Sequence[tuple[float, float]]
) -> None:
    left, right = axes.get_xlim()
    taken: list[_Box] = []
    if peak:
        axes.plot([left, right], [peak] * 2, color=INK, linewidth=1)
        axes.annotate(
            "compute", (right, peak), xytext=(0, 2), textcoords="offset points", ha="right", va="bottom", fontsize=8
        )
        corner = _box(axes, right, peak, "compute")
        taken.append(corner.moved(-corner.width / 2, corner.height / 2 + 2))
    marks = [_box(axes, x, y, "o") for x, y in points]
    for ceiling in bandwidths:
        end = min(right, peak / ceiling.rate) if peak else right
        if end <= left:
            continue
        dashes = "dashed" if ceiling.name == "write" else "solid"
        axes.plot([left, end], [ceiling.rate * left, ceiling.rate * end], color=MUTED, linewidth=1, linestyle=dashes)
        # The label is on its line, where it overlaps no other label and the fewest points. Lines without such a
        # position are named only in the text below the plot.
        name = label("write" if ceiling.name == "write" else ceiling.level, 10)
        places = [left * (end / left) ** ((number + 0.5) / _PLACES) for number in range(_PLACES)]
        free = [
            (sum(box.meets(mark) for mark in marks), place, box)
            for place in places
            if (box := _box(axes, place, ceiling.rate * place, name)).inside(axes)
            and not any(box.meets(other) for other in taken)
        ]
        if not free:
            continue
        _, place, box = min(free, key=lambda one: (one[0], -one[1]))
        taken.append(box)
        ground = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
        axes.text(place, ceiling.rate * place, name, ha="center", va="center", fontsize=8, bbox=ground, zorder=3)


@dataclass(frozen=True, slots=True)
class _Box:
    """The box of a label: centre and size in points."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> _Box:
        """The box, moved by (x, y)."""
        return replace(self, x=self.x + x, y=self.y + y)

    def meets(self, other: _Box) -> bool:
        """Whether the boxes overlap."""
        apart_x, apart_y = abs(self.x - other.x), abs(self.y - other.y)
        return 2 * apart_x < self.width + other.width and 2 * apart_y < self.height + other.height

    def inside(self, axes: Axes) -> bool:
        """Whether the whole box is inside the plot."""
        left, bottom, right, top = (float(each) * 72 / axes.figure.dpi for each in axes.bbox.extents)
        beside, above = self.width / 2, self.height / 2
        return left + beside <= self.x <= right - beside and bottom + above <= self.y <= top - above


def _box(axes: Axes, x: float, y: float, text: str) -> _Box:
    at_x, at_y = axes.transData.transform((x, y)) * 72 / axes.figure.dpi
    return _Box(float(at_x), float(at_y), _LETTER_PT * len(text) + 2, _LINE_PT)


def _device(record: Record, number: int, runs: list[Run]) -> dict[str, Any]:
    compared = [run for run in runs if any(not figure.footing.timing.too_noisy for figure in groups.figures([run]))]
    rows = [row for row in map(_row, _drawn(compared)) if row["cold"] or row["hot"]]
    ceilings = roofs(record, runs[0].device)
    title = (
        f"Roofline: {units.counted(len(rows), 'Run')} and {units.counted(len(ceilings), 'ceiling')}; the "
        "table has the same figures"
    )
    height = _PLOT_PT + _LEGEND_PT * ceil(len({run.op for run in runs}) / 2)
    plot = (
        svg(f"roofline{number}", title, height, lambda figure: _draw(figure, rows, ceilings, height)) if rows else None
    )
    return {
        "device": runs[0].device,
        "host": runs[0].device == HOST,
        "rows": rows,
        "roofs": ceilings,
        "left_out": len(compared) - len(rows),
        "doubted": sum(each.device == runs[0].device for each in contradicted(record.machine.ceilings)),
        "noisy": sum(figure.footing.timing.too_noisy for figure in groups.figures(runs)),
        "plot": plot,
    }


def _context(record: Record) -> dict[str, Any] | None:
    by_device: dict[str, list[Run]] = {}
    for run in groups.sound(record):
        by_device.setdefault(run.device, []).append(run)
    found = [_device(record, number, runs) for number, runs in enumerate(by_device.values())]
    drawn = [device for device in found if device["plot"]]
    return {"devices": drawn} if drawn else None


SECTION = Section("roofline", "Roofline", "roofline.html", _context, about="each Run under the measured ceilings")
