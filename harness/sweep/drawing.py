"""Pictures of a sweep: time, rate and percent of the ceiling over the axis, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from math import ceil
from typing import TYPE_CHECKING, Any

from tritmark.harness.report.picture import Picture
from tritmark.harness.report.plot import MARKERS, Palette
from tritmark.harness.sweep.crossing import KernelCrossing, crossovers
from tritmark.harness.sweep.points import SweepGrid, SweepLine, SweepPoint
from tritmark.harness.text import units
from tritmark.harness.text.visible import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

_SHARE = 2
"""The panel with shares of the ceiling."""
MOST_LINES = 16
"""More lines in one picture cannot be told apart."""
_WIDTH_PT, _PANEL_PT, _HEAD_PT, _LINE_PT = 380.0, 120.0, 64.0, 14.0
_DECADES = 1.7
"""An axis that spans fewer decades has ticks at 2 and 5 times the powers of ten, too."""
_LETTERS = 56
"""Letters of tick labels that fit below a panel."""
_DASHES = ("-", "--")
"""The ninth line and later ones repeat the colours, and are dashed."""


def picture(every: Sequence[SweepGrid], title: str, name: str = "sweep", heading: Sequence[str] = ()) -> Picture:
    """All grids in one picture: cold and hot side by side, sizes of the other axes below each other.

    `heading`: lines above, the first one bold; without it the grids have no titles, either."""
    places = list(dict.fromkeys(tuple(grid.fixed.items()) for grid in every))
    data = list(dict.fromkeys(grid.data for grid in every))
    legend_pt = (ceil((len(_labels(every)) + 1) / (2 * len(data))) + 1) * _LINE_PT
    heading_pt = (len(heading) + 1.4) * _LINE_PT if heading else 2.0
    rows_pt = len(places) * (3 * _PANEL_PT + _HEAD_PT)
    height = heading_pt + rows_pt + legend_pt

    def draw(figure: Figure, colours: Palette) -> dict[str, str]:
        parts: Any = figure.subfigures(3, 1, height_ratios=(heading_pt, rows_pt, legend_pt))
        head, middle, foot = parts
        for number, line in enumerate(heading):
            at = 1 - (number + 0.9) * _LINE_PT / heading_pt
            look = {"fontweight": "bold"} if not number else {"color": colours.muted, "fontsize": 8}
            head.text(0.012, at, label(line, 70 * len(data)), va="center", **look)
        cells = middle.subfigures(len(places), len(data), squeeze=False)
        styles = _styles(every, colours)
        tips: dict[str, str] = {}
        for grid in every:
            cell = cells[places.index(tuple(grid.fixed.items()))][data.index(grid.data)]
            if heading:
                cell.suptitle(grid.place, x=0.2, y=0.985, ha="left", va="top", fontsize=9, fontweight="bold")
            tips |= _draw(cell, grid, colours, styles, f"{name}{len(tips)}")
        _legend(foot, every, colours)
        return tips

    return Picture(name, title, _WIDTH_PT * len(data), height, draw)


def drawn(grid: SweepGrid) -> tuple[SweepLine, ...]:
    """The lines of a picture: the fastest ones at the largest size that they have."""
    order = sorted(grid.lines, key=lambda line: (-line.points[-1].size, line.points[-1].ns))
    kept = {line.kernel for line in order[:MOST_LINES]}
    return tuple(line for line in grid.lines if line.kernel in kept)


def shown_crossovers(grid: SweepGrid) -> list[KernelCrossing]:
    """The crossings that are marked: where the fastest kernel changes."""
    return [each for each in crossovers(grid) if each.leading]


def _labels(every: Sequence[SweepGrid]) -> list[str]:
    return list(dict.fromkeys(line.label for grid in every for line in drawn(grid)))


def _styles(every: Sequence[SweepGrid], colours: Palette) -> dict[str, dict[str, Any]]:
    """Colour, marker and dashes of each line, the same in all panels."""
    series, count = cycle(range(len(colours.series))), len(colours.series)
    return {
        name: {"color": colours.series[place], "marker": MARKERS[place], "linestyle": _DASHES[number // count % 2]}
        for (number, name), place in zip(enumerate(_labels(every)), series, strict=False)
    }


def _draw(
    figure: SubFigure, grid: SweepGrid, colours: Palette, styles: dict[str, dict[str, Any]], prefix: str
) -> dict[str, str]:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes = figure.subplots(3, 1, sharex=True)
    figure.subplots_adjust(left=0.2, right=0.97, top=0.92, bottom=0.09, hspace=0.18)
    tips: dict[str, str] = {}
    for panel, (take, text) in enumerate(
        ((_time, units.time), (_rate(grid), lambda value: units.rate(value, grid.unit)), (_share, units.percent))
    ):
        _limit(
            axes[panel], [each for line in drawn(grid) for point in line.points if (each := _range(point, take))], panel
        )
        for line in drawn(grid):
            tips |= _line(axes[panel], line, take, styles[line.label], colours, f"{prefix}-{panel}", (grid.along, text))
    for each in axes:
        each.grid(which="major", color=colours.grid)
    for each in axes[:2]:
        low, high = each.get_ylim()
        subs = (1, 2, 5) if high < low * 10**_DECADES else (1,)
        each.yaxis.set_major_locator(LogLocator(subs=subs, numticks=7))
        each.yaxis.set_minor_locator(NullLocator())
    time, rate, share = axes
    time.set_ylabel("time of a call")
    time.yaxis.set_major_formatter(FuncFormatter(lambda value, _: units.time(value)))
    rate.set_ylabel("operation rate" if grid.unit == "operations/s" else "bandwidth")
    rate.yaxis.set_major_formatter(FuncFormatter(lambda value, _: units.rate(value, grid.unit)))
    share.set_ylabel("of the ceiling")
    share.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    _sizes(share, grid)
    figure.align_ylabels(axes)
    for number, crossing in enumerate(shown_crossovers(grid), start=1):
        _mark(time, crossing, number, colours)
    return tips


def _sizes(axes: Axes, grid: SweepGrid) -> None:
    """The measured sizes as ticks, on a logarithmic scale if they span more than a factor of four."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    every = sorted({point.size for line in grid.lines for point in line.points})
    axes.set_xlabel(grid.along)
    if every[-1] > 4 * every[0]:
        axes.set_xscale("log", base=2)
    step = ceil(sum(len(str(size)) + 2 for size in every) / _LETTERS)
    ticks = every[::-1][::step][::-1]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{tick}" for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())


def _range(point: SweepPoint, take: Any) -> tuple[float, float] | None:
    """What must be visible of a figure: its interval, or the median alone if it is too noisy."""
    found = take(point)
    return None if found is None else (found[0], found[0]) if point.too_noisy else (found[1], found[2])


def _limit(axes: Axes, ranges: Sequence[tuple[float, float]], panel: int) -> None:
    """Limits of a panel; set by hand, because the interval of one figure that is too noisy may be a thousand times as
    long as all others. Shares of the ceiling begin at zero, times and rates are logarithmic."""
    if not ranges:
        return
    low, high = min(each[0] for each in ranges), max(each[1] for each in ranges)
    if panel == _SHARE:
        axes.set_ylim(0, max(1.0, high * 1.05))
    else:
        margin = max(1.15, (high / low) ** 0.08)
        axes.set_yscale("log")
        axes.set_ylim(low / margin, high * margin)


def _time(point: SweepPoint) -> tuple[float, float, float] | None:
    return point.ns, point.low_ns, point.high_ns


def _rate(grid: SweepGrid) -> Any:
    def take(point: SweepPoint) -> tuple[float, float, float] | None:
        if not point.work or point.low_ns <= 0:
            return None
        return point.work * 1e9 / point.ns, point.work * 1e9 / point.high_ns, point.work * 1e9 / point.low_ns

    return take


def _share(point: SweepPoint) -> tuple[float, float, float] | None:
    if point.share is None or point.share_low is None or point.share_high is None:
        return None
    return point.share, point.share_low, point.share_high


def _line(
    axes: Axes,
    line: SweepLine,
    take: Any,
    look: dict[str, Any],
    colours: Palette,
    prefix: str,
    texts: tuple[str, Any],
) -> dict[str, str]:
    """A line through the points, whiskers for intervals, and a marker for each point: hollow if it is too noisy."""
    along, text = texts
    found = [(point, figure) for point in line.points if (figure := take(point)) is not None]
    if not found:
        return {}
    colour = look["color"]
    middles = [figure[0] for _, figure in found]
    places = [point.size for point, _ in found]
    axes.plot(places, middles, color=colour, linestyle=look["linestyle"], linewidth=1.1, zorder=2)
    below = [max(0.0, figure[0] - figure[1]) for _, figure in found]
    above = [max(0.0, figure[2] - figure[0]) for _, figure in found]
    axes.errorbar(places, middles, yerr=(below, above), fmt="none", ecolor=colour, elinewidth=0.9, zorder=2)
    tips = {}
    for number, (point, figure) in enumerate(found):
        gid = f"{prefix}-{line.kernel}-{number}"
        axes.plot(
            [point.size],
            [figure[0]],
            marker=look["marker"],
            markersize=4.6,
            markeredgewidth=1.0,
            markeredgecolor=colour,
            markerfacecolor=colours.paper if point.too_noisy else colour,
            linestyle="none",
            gid=gid,
            zorder=3,
        )
        hollow = f", {units.NOISY}" if point.too_noisy else ""
        tips[gid] = f"{line.label}, {along}={point.size}: {text(figure[0])}{hollow}"
    return tips


def _mark(axes: Axes, each: KernelCrossing, number: int, colours: Palette) -> None:
    """A vertical line with the number of the crossing: dashed if it is certain, else dotted and with a ~."""
    colour, dashes = (colours.ink, (0, (5, 2))) if each.certain else (colours.muted, (0, (1, 2)))
    axes.axvline(each.about, color=colour, linewidth=0.9, linestyle=dashes, zorder=1)
    axes.annotate(
        f"{number}" if each.certain else f"~{number}",
        (each.about, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 1),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=8,
        color=colour,
    )


def _legend(figure: SubFigure, every: Sequence[SweepGrid], colours: Palette) -> None:
    from matplotlib.lines import Line2D

    styles = _styles(every, colours)
    handles = [
        Line2D([], [], markersize=4.6, linewidth=1.1, label=label(name, 40), **look) for name, look in styles.items()
    ]
    hollow: dict[str, Any] = {
        "marker": "o",
        "linestyle": "none",
        "markerfacecolor": colours.paper,
        "markeredgecolor": colours.muted,
    }
    if any(point.too_noisy for grid in every for line in drawn(grid) for point in line.points):
        handles.append(Line2D([], [], markersize=4.6, label=f"hollow: {units.NOISY}", **hollow))
    data = len({grid.data for grid in every})
    figure.legend(handles=handles, loc="center", ncols=2 * data, fontsize=8, handlelength=2.4, columnspacing=1.2)
