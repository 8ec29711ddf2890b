"""Where each measured Run stands under the roofs that this machine was measured to have (Williams, Waterman, Patterson 2009)."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any

from tritmark.harness.record import CeilingFacts, Record, Run
from tritmark.harness.report import groups, units
from tritmark.harness.report.plot import GRID, INK, MARKERS, MUTED, PAPER, SERIES, svg
from tritmark.harness.report.section import Section
from tritmark.harness.report.text import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_POINTS = 150
_PLOT_PT = 250
_AXIS_PT = 34
_LEGEND_PT = 15


def _work(run: Run) -> tuple[float, float]:
    """Operations, and operations for each byte that has to move."""
    operations, nbytes = run.performance.operations, run.performance.read + run.performance.written
    return operations, operations / nbytes if nbytes else 0.0


def _drawn(runs: list[Run]) -> list[Run]:
    runs = [run for run in runs if _work(run)[1] > 0]
    return runs if len(runs) <= _MOST_POINTS else groups.fastest(runs)[:_MOST_POINTS]


def roofs(record: Record, device: str) -> list[CeilingFacts]:
    """A device's ceilings at the largest number of threads: reading from each level, writing to memory, computing; the fastest first."""
    ceilings = [ceiling for ceiling in record.machine.ceilings if ceiling.device == device]
    threads = max((ceiling.threads for ceiling in ceilings), default=0)
    found: dict[tuple[str, str], CeilingFacts] = {}
    for ceiling in ceilings:
        known = found.get((ceiling.name, ceiling.level))
        wanted = ceiling.name in {"read", "compute"} or (ceiling.name, ceiling.level) == ("write", "memory")
        if wanted and ceiling.threads == threads and ceiling.rate > 0 and (known is None or ceiling.rate > known.rate):
            found[ceiling.name, ceiling.level] = ceiling
    return sorted(found.values(), key=lambda ceiling: (ceiling.unit, -ceiling.rate))


def _row(run: Run) -> dict[str, Any]:
    operations, intensity = _work(run)
    footings = {"cold": run.performance.cold, "hot": run.performance.hot}
    speeds = {
        name: operations / footing.timing.median_ns * 1e9 if footing and footing.timing.median_ns > 0 else None
        for name, footing in footings.items()
    }
    limits = sorted({footing.against.ceiling for footing in footings.values() if footing})
    return {"run": run, "intensity": intensity, "limits": limits, **speeds}


def _draw(figure: Figure, rows: list[dict[str, Any]], ceilings: list[CeilingFacts], height: float) -> Mapping[str, str]:
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

    bottom = (height - _PLOT_PT + _AXIS_PT) / height
    axes = figure.add_axes((0.15, bottom, 0.82, 0.98 - bottom))
    axes.set(xscale="log", yscale="log", xlabel="operations for each byte that has to move", ylabel="operations a second")
    intensities = [row["intensity"] for row in rows]
    left, right = min(intensities) / 4, max(intensities) * 4
    tips = _points(axes, rows)
    peak = max((ceiling.rate for ceiling in ceilings if ceiling.unit != "bytes/s"), default=None)
    speeds = [row[name] for row in rows for name in ("cold", "hot") if row[name]]
    slowest = min([*speeds, *(ceiling.rate * left for ceiling in ceilings if ceiling.unit == "bytes/s")])
    highest = max([*speeds, *([peak] if peak else [ceiling.rate * right for ceiling in ceilings])])
    axes.set(xlim=(left, right), ylim=(slowest / 2, highest * 3))
    _roofs(axes, ceilings, peak)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=9))
        axis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.tick_params(which="minor", length=0)
    axes.grid(which="major", color=GRID)
    figure.legend(loc="lower center", ncols=2, fontsize=9, handletextpad=0.3, columnspacing=1.2, borderaxespad=0.1)
    return tips


def _points(axes: Axes, rows: list[dict[str, Any]]) -> dict[str, str]:
    """A filled marker for cold, a hollow one for hot; shape and colour say the op. Returns the tooltips."""
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
                tips[gid] = f"{run.kernel}, {groups.place(run.workload)}, {run.threads} threads, {name}: {units.rate(row[name], 'OP/s')}"
    for number, op in enumerate(ops):
        place = number % len(SERIES)
        axes.plot([], [], MARKERS[place], markersize=5, color=SERIES[place], label=label(op))
    return tips


def _roofs(axes: Axes, ceilings: list[CeilingFacts], peak: float | None) -> None:
    left, right = axes.get_xlim()
    aside = 0
    for ceiling in ceilings:
        if ceiling.unit != "bytes/s":
            axes.plot([left, right], [ceiling.rate] * 2, color=INK, linewidth=1)
            _tag(axes, ceiling.name, ((left * right**9) ** 0.1, ceiling.rate))
            continue
        end = max(left, min(right, peak / ceiling.rate)) if peak else right
        dashes = "dashed" if ceiling.name == "write" else "solid"
        axes.plot([left, end], [ceiling.rate * left, ceiling.rate * end], color=MUTED, linewidth=1, linestyle=dashes)
        # Neighbouring roofs may be close: their tags take turns in standing further right.
        start = left * (right / left) ** (0.08 + 0.08 * (aside % 3))
        _tag(axes, "write" if ceiling.name == "write" else ceiling.level, (start, ceiling.rate * start))
        aside += 1


def _tag(axes: Axes, text: str, place: tuple[float, float]) -> None:
    """A short name on the line itself, which is broken behind it."""
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
    axes.text(*place, label(text, 10), ha="center", va="center", fontsize=8, bbox=box, zorder=3, clip_on=True)


def _device(record: Record, number: int, runs: list[Run]) -> dict[str, Any]:
    rows = [row for row in map(_row, _drawn(runs)) if row["cold"] or row["hot"]]
    ceilings = roofs(record, runs[0].device)
    title = f"Roofline: {units.counted(len(rows), 'Run')} and {units.counted(len(ceilings), 'ceiling')}; the table has the same figures"
    height = _PLOT_PT + _LEGEND_PT * ceil(len({run.op for run in runs}) / 2)
    plot = svg(f"roofline{number}", title, height, lambda figure: _draw(figure, rows, ceilings, height)) if rows else None
    return {"device": runs[0].device, "rows": rows, "roofs": ceilings, "left_out": len(runs) - len(rows), "plot": plot}


def _context(record: Record) -> dict[str, Any] | None:
    by_device: dict[str, list[Run]] = {}
    for run in groups.sound(record):
        by_device.setdefault(run.device, []).append(run)
    found = [_device(record, number, runs) for number, runs in enumerate(by_device.values())]
    drawn = [device for device in found if device["plot"]]
    return {"devices": drawn} if drawn else None


SECTION = Section("roofline", "Roofline", "roofline.html", _context)
