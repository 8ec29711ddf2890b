"""The comparison of two Records as a picture: for each kernel the speed of the second over the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritmark.harness.errors import NothingToCompareError, UsageError
from tritmark.harness.record import Ratio, Record
from tritmark.harness.report import picture as pictures
from tritmark.harness.report.compare import BAND, Change, Pair, RecordComparison, change_of, compare, counts
from tritmark.harness.report.machine import one_line
from tritmark.harness.report.picture import Picture
from tritmark.harness.report.plot import Palette
from tritmark.harness.text import groups, units
from tritmark.harness.text.distrust import distrust
from tritmark.harness.text.visible import label
from tritmark.harness.verify import refuted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_ROWS, _MOST_SINGLE = 60, 5
_WIDTH_PT, _ROW_PT, _HEAD_PT, _FOOT_PT = 620.0, 15.0, 62.0, 64.0
_NAME = 46
"""Letters of a kernel's name beside the plot. The page and the table have the whole name."""
_WORDS = {
    Change.SLOWER: "slower",
    Change.FASTER: "faster",
    Change.SAME: f"same (within {200 * BAND:.0f} %)",
    Change.UNSURE: "unsure",
}


@dataclass(frozen=True, slots=True)
class KernelChange:
    """One kernel, cold or hot, over all workloads of both Records."""

    kernel: str
    data: str
    """cold or hot."""
    ratio: Ratio
    """Geometric mean of the ratios. The ends are the means of the ends, so the interval is wider than that of the mean
    and never too narrow."""
    change: Change
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class ComparedRecords:
    """Two Records of one machine. Ratios are the speed of `new` over that of `old`."""

    old: Record
    new: Record
    found: RecordComparison
    kernels: tuple[KernelChange, ...]
    """The slowest first."""

    @property
    def headline(self) -> str:
        """1 kernel slower, 3 faster."""
        numbers = ((sum(each.change is change for each in self.kernels), change) for change in Change)
        return ", ".join(f"{number:,} {_WORDS[change]}" for number, change in numbers if number)

    @property
    def distrust(self) -> str:
        """What contradicts one of the Records; "" for nothing."""
        return "; ".join(filter(None, (distrust(refuted(each), f"Record {each.id}") for each in (self.old, self.new))))

    @property
    def notes(self) -> list[str]:
        """What a reader must know beside the ratios, the most important first."""
        texts = [f"single figures: {counts(self.found)}"]
        for number, where in (
            (self.found.only_before, f"only in {self.old.id}"),
            (self.found.only_now, f"only in {self.new.id}"),
            (self.found.other, "in both, but measured against different ceilings, and not compared"),
        ):
            if number:
                texts.append(f"{units.counted(number, 'Run')} {where}")
        slower = [
            f"{each.kernel}, {each.data}, {groups.shape(pair.run.workload)}: {units.times(pair.ratio)}"
            for each in self.kernels
            for pair in each.pairs
            if pair.change is Change.SLOWER and each.change is not Change.SLOWER
        ]
        if slower:
            more = f" and {len(slower) - _MOST_SINGLE:,} more" if len(slower) > _MOST_SINGLE else ""
            texts.append(f"slower at single workloads: {'; '.join(slower[:_MOST_SINGLE])}{more}")
        noisy = [f"{each.kernel}, {each.data}" for each in self.kernels if each.ratio.too_noisy]
        if noisy:
            texts.append(f"too noisy to compare, hollow in the picture: {'; '.join(noisy)}")
        if len(self.kernels) > _MOST_ROWS:
            texts.append(f"{len(self.kernels) - _MOST_ROWS:,} rows with the smallest changes are not in the picture")
        return texts


def compared(old: Record, new: Record) -> ComparedRecords:
    """Compare two Records of one machine. Raises NothingToCompareError for the same Record, and UsageError for
    different machines or Records without a common Run."""
    if old.id == new.id:
        raise NothingToCompareError(f"{old.id}: both are the same Record; legal: two Records of one machine")
    found = compare(new, old)
    if found.refused:
        raise UsageError(f"{old.id} and {new.id}: {found.refused}")
    if not found.pairs:
        raise UsageError(
            f"{old.id} and {new.id}: no Run with a figure is in both; legal: two Records with equal kernels, workloads "
            "and thread counts"
        )
    by: dict[tuple[str, str], list[Pair]] = {}
    for pair in found.pairs:
        by.setdefault((pair.run.kernel, pair.name), []).append(pair)
    kernels = [_kernel(*key, pairs) for key, pairs in by.items()]
    return ComparedRecords(old, new, found, tuple(sorted(kernels, key=lambda each: each.ratio.median)))


def save(found: ComparedRecords, path: Path) -> Path:
    """Write the picture: PNG, SVG or HTML by the suffix. Raises UsageError."""
    return pictures.write(path, picture(found), lambda: html(found))


def picture(found: ComparedRecords, *, heading: bool = True) -> Picture:
    """Rows of kernels, the slowest first, each with its ratio and interval. Small marks are single workloads."""
    rows = _rows(found.kernels)
    head_pt = _HEAD_PT if heading else 6.0
    height = head_pt + _ROW_PT * len(rows) + _FOOT_PT

    def draw(figure: Figure, colours: Palette) -> dict[str, str]:
        if heading:
            _heading(figure, found, colours, height)
        axes = figure.add_axes((0.42, _FOOT_PT / height, 0.36, _ROW_PT * len(rows) / height))
        tips = _draw(axes, rows, colours)
        _legend(figure, rows, colours)
        return tips

    title = f"Speed of {units.counted(len(rows), 'kernel')} in two Records; the table has the same figures"
    return Picture("compare", title, _WIDTH_PT, height, draw)


def html(found: ComparedRecords) -> str:
    """The comparison as one HTML page that needs no network."""
    from tritmark.harness.report.page import document

    return document(
        "compared.html",
        headline=found.headline,
        notes=found.notes,
        plot=pictures.element(picture(found, heading=False)),
        found=found,
        machine=one_line(found.new),
        words=_WORDS,
        distrust=found.distrust,
    )


def _kernel(kernel: str, data: str, pairs: Sequence[Pair]) -> KernelChange:
    def mean(end: str) -> float:
        return exp(fsum(log(getattr(pair.ratio, end)) for pair in pairs) / len(pairs))

    ratio = Ratio(
        median=mean("median"), low=mean("low"), high=mean("high"), pairs=min(pair.ratio.pairs for pair in pairs)
    )
    change = change_of(ratio)
    if change is Change.SAME and any(pair.change in {Change.SLOWER, Change.FASTER} for pair in pairs):
        change = Change.UNSURE  # a mean hides workloads that became slower and others that became faster
    return KernelChange(kernel, data, ratio, change, tuple(pairs))


def _rows(kernels: Sequence[KernelChange]) -> list[KernelChange]:
    """The rows of the picture: of too many, those with the largest certain changes."""
    certain = {Change.SLOWER: 0, Change.FASTER: 0, Change.UNSURE: 1, Change.SAME: 2}
    order = sorted(kernels, key=lambda each: (certain[each.change], -abs(log(each.ratio.median))))
    kept = {id(each) for each in order[:_MOST_ROWS]}
    return [each for each in kernels if id(each) in kept]


def _looks(colours: Palette) -> dict[Change, dict[str, Any]]:
    """Blue and orange, which colour-blind readers can tell apart, and a shape for each change."""
    blue, orange = colours.series[:2]
    return {
        Change.SLOWER: {"marker": "v", "color": orange, "markerfacecolor": orange},
        Change.FASTER: {"marker": "^", "color": blue, "markerfacecolor": blue},
        Change.SAME: {"marker": "o", "color": colours.muted, "markerfacecolor": colours.muted},
        Change.UNSURE: {"marker": "o", "color": colours.muted, "markerfacecolor": colours.paper},
    }


def _heading(figure: Figure, found: ComparedRecords, colours: Palette, height: float) -> None:
    lines = (
        found.headline,
        f"Record {found.new.id} ({_commit(found.new)}) over {found.old.id} ({_commit(found.old)})",
        one_line(found.new),
    )
    for number, line in enumerate(lines):
        look: dict[str, Any] = {"fontweight": "bold"} if not number else {"color": colours.muted, "fontsize": 8}
        figure.text(0.012, 1 - (number + 0.8) * 14 / height, label(line, 135), va="center", **look)


def _commit(record: Record) -> str:
    return f"commit {record.environment.commit[:12]}" if record.environment.commit else record.created[:10]


def _draw(axes: Axes, rows: Sequence[KernelChange], colours: Palette) -> dict[str, str]:
    from matplotlib.ticker import FuncFormatter, NullLocator

    looks, tips = _looks(colours), {}
    axes.axvspan(1 - BAND, 1 + BAND, color=colours.grid, linewidth=0, zorder=0)
    axes.axvline(1, color=colours.ink, linewidth=0.8, zorder=1)
    right = axes.get_yaxis_transform()
    for place, row in enumerate(rows):
        look, ratio = looks[row.change], row.ratio
        if len(row.pairs) > 1:
            for pair in row.pairs:
                colour = looks[pair.change]["color"]
                axes.plot([pair.ratio.median] * 2, [place - 0.28, place + 0.28], color=colour, linewidth=0.7, zorder=2)
        axes.plot([ratio.low, ratio.high], [place] * 2, color=look["color"], linewidth=1.3, zorder=3)
        gid = f"row{place}"
        axes.plot([ratio.median], [place], linestyle="none", markersize=6, gid=gid, zorder=4, **look)
        tips[gid] = f"{row.kernel}, {row.data}: {units.times(ratio)}, {_WORDS[row.change]}"
        axes.text(
            -0.02,
            place,
            f"{label(row.kernel, _NAME)}, {row.data}",
            transform=right,
            ha="right",
            va="center",
            fontsize=8,
        )
        axes.text(1.02, place, units.times(ratio), transform=right, ha="left", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.yaxis.set_major_locator(NullLocator())
    axes.spines["left"].set_visible(False)
    low, high = _limits(rows)
    axes.set_xlim(low, high)
    axes.set_xticks(_ticks(low, high))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.set_xlabel("speed, new over old: slower | faster")
    axes.grid(axis="x", color=colours.grid)
    return tips


def _limits(rows: Sequence[KernelChange]) -> tuple[float, float]:
    """Equal room on both sides of 1. Intervals that are too noisy may leave the plot."""
    ends = [end for row in rows if not row.ratio.too_noisy for end in (row.ratio.low, row.ratio.high)]
    ends += [row.ratio.median for row in rows]
    widest = max(1.1, *(max(end, 1 / end) for end in ends)) ** 1.08
    return 1 / widest, widest


def _ticks(low: float, high: float) -> list[float]:
    """About seven ticks at round ratios."""
    for steps in ((0.95, 1.05), (0.9, 1.1), (0.8, 1.25), (0.5, 0.67, 1.5, 2), (0.2, 0.5, 2, 5), (0.1, 0.3, 3, 10)):
        inside = [each for each in steps if low < each < high]
        if steps[-1] ** 2.5 >= high:
            return sorted([*inside, 1])
    return [1]


def _legend(figure: Figure, rows: Sequence[KernelChange], colours: Palette) -> None:
    from matplotlib.lines import Line2D

    looks, shown = _looks(colours), {row.change for row in rows}
    handles = [
        Line2D([], [], linewidth=1.3, markersize=6, label=_WORDS[change], **looks[change])
        for change in Change
        if change in shown
    ]
    figure.legend(handles=handles, loc="lower center", ncols=4, fontsize=8, handlelength=2.2)


def rows_of(found: ComparedRecords) -> Iterator[tuple[str, str, str, str]]:
    """Kernel, data, ratio and change of each row, for tables."""
    for each in found.kernels:
        yield each.kernel, each.data, units.times(each.ratio), _WORDS[each.change]
