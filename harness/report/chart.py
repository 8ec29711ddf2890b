"""Geometry of the small plots that templates/charts.html writes as SVG. A matplotlib figure takes about a hundred times
as long: docs/decisions/charts-as-hand-made-svg.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log10
from typing import Any

from tritmark.harness.record import Ratio
from tritmark.harness.text import units
from tritmark.harness.text.visible import label

WIDTH = 360
"""Width of each plot in its own units. The page shows it 340 to 620 pixels wide; text is 9 units high."""
_ROW, _HEAD, _FOOT = 14, 17, 24
_LABELS, _FIGURES = 122, 44
_NEAR = 4.0
"""Ratio of the ends of an axis up to which ticks are evenly spaced. Above it they are 1, 2 and 5 times powers of 10."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high`, drawn from `begin` to `end`. Values of a logarithmic axis are above zero."""

    low: float
    high: float
    begin: float
    end: float
    even: bool = False
    """Not logarithmic."""

    def at(self, value: float) -> float:
        """The position of a value. Values outside the axis are clipped to its ends."""
        inside = min(max(value, self.low), self.high)
        share = (
            (inside - self.low) / (self.high - self.low)
            if self.even
            else log(inside / self.low) / log(self.high / self.low)
        )
        return round(self.begin + (self.end - self.begin) * share, 1)

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers between its ends."""
        near = self.even or self.high / self.low < _NEAR
        found = _even(self.low, self.high, most) if near else _decades(self.low, self.high)
        while len(found) > most:
            # Keep 1, to which ratios are compared.
            found = found[found.index(1) % 2 :: 2] if 1 in found else found[::2]
        return found


def axis(values: Iterable[float], begin: float, end: float, *, margin: float = 1.08) -> Axis:
    """An axis for values above zero."""
    taken = list(values)
    return Axis(min(taken) / margin, max(taken) * margin, begin, end)


def tick(value: float) -> str:
    """The label of a tick: 0.05, 256, 13824, 2M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.6g}"


def _even(low: float, high: float, most: int) -> list[float]:
    power = 10.0 ** floor(log10((high - low) / most))
    step = next(each * power for each in (1, 2, 5, 10, 20) if (high - low) / (each * power) <= most)
    return [round(number * step, 12) for number in range(ceil(low / step), floor(high / step) + 1)]


def _decades(low: float, high: float) -> list[float]:
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    found = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    return [value for value in found if low <= value <= high]


@dataclass(frozen=True, slots=True)
class ForestEntry:
    """One ratio of a forest plot."""

    heading: str
    """Rows with the same heading are grouped."""
    name: str
    ratio: Ratio
    tip: str
    kind: str = ""
    """Result of `kind`; "" derives it from the ratio."""


def kind(ratio: Ratio) -> str:
    """ "above" or "below" if the whole interval is above or below 1, else "across"."""
    if ratio.low > 1:
        return "above"
    return "below" if ratio.high < 1 else "across"


def forest(entries: Sequence[ForestEntry], title: str) -> dict[str, Any]:
    """A forest plot: ratios with their intervals in rows, on a logarithmic axis with a line at 1."""
    scale = axis(
        [1.0, *(end for entry in entries for end in (entry.ratio.low, entry.ratio.high) if end > 0)],
        _LABELS + 6,
        WIDTH - _FIGURES - 6,
    )
    y, rows, headings = 4.0, [], []
    spans: list[dict[str, float]] = []
    for number, entry in enumerate(entries):
        if not number or entry.heading != entries[number - 1].heading:
            headings.append({"y": y + 11, "text": label(entry.heading, 62)})
            y += _HEAD
            spans.append({"from": y})
        spans[-1]["to"] = y + _ROW
        rows.append(
            {
                "y": y + _ROW / 2,
                "name": label(entry.name, 24),
                "x": scale.at(entry.ratio.median),
                "left": scale.at(entry.ratio.low),
                "right": scale.at(entry.ratio.high),
                "kind": entry.kind or kind(entry.ratio),
                "figure": f"{units.number(entry.ratio.median)}x",
                "tip": f"{entry.heading}, {entry.name}: {entry.tip}",
            }
        )
        y += _ROW
    ticks = [{"x": scale.at(value), "text": tick(value)} for value in scale.ticks()]
    return {
        "title": title,
        "rows": rows,
        "headings": headings,
        "spans": spans,
        "ticks": ticks,
        "one": scale.at(1),
        "bottom": y,
        "height": y + _FOOT,
    }


@dataclass(frozen=True, slots=True)
class Bar:
    """A cold and a hot percentage; None if it was not measured."""

    name: str
    cold: float | None
    hot: float | None


_BAR_LABELS, _BAR_END, _MOST_PERCENT = 86, WIDTH - 24, 200.0
_PAIR = 20
"""Height of two bars."""


def bars(groups: Sequence[tuple[str, Sequence[Bar]]], title: str) -> dict[str, Any]:
    """Pairs of bars under headings, on an axis from 0 to at least 100 percent."""
    taken = [value for _, bars in groups for bar in bars for value in (bar.cold, bar.hot) if value is not None]
    end = 1.06 * min(_MOST_PERCENT, max([100.0, *taken]))
    y, rows, headings = 2.0, [], []
    spans: list[dict[str, float]] = []
    for heading, each in groups:
        headings.append({"y": y + 11, "text": label(heading, 62)})
        y += _HEAD - 2
        spans.append({"from": y, "to": y + _PAIR * len(each)})
        for bar in each:
            pair = [
                {"y": y + 1 + 9 * number, "to": _percent_at(value, end), "text": round(value), "kind": kind}
                for number, (kind, value) in enumerate((("cold", bar.cold), ("hot", bar.hot)))
                if value is not None
            ]
            tip = ", ".join(f"{mark['kind']} {mark['text']} %" for mark in pair)
            rows.append({"y": y, "name": label(bar.name, 15), "bars": pair, "tip": f"{heading}, {bar.name}: {tip}"})
            y += _PAIR
    ticks = [{"x": _percent_at(value, end), "text": value} for value in range(0, int(end) + 1, 25 if end < 130 else 50)]
    return {
        "title": title,
        "rows": rows,
        "headings": headings,
        "spans": spans,
        "ticks": ticks,
        "begin": _BAR_LABELS,
        "one": _percent_at(100, end),
        "bottom": y + 2,
        "height": y + _FOOT + 12,
    }


def _percent_at(value: float, end: float) -> float:
    return round(_BAR_LABELS + (_BAR_END - _BAR_LABELS) * min(value, end) / end, 1)


@dataclass(frozen=True, slots=True)
class Point:
    """One figure with its interval."""

    x: float
    y: float
    low: float
    high: float
    tip: str


_PLOT_TOP, _PLOT_BOTTOM, _PLOT_LEFT = 8, 176, 56


def lines(
    series: Sequence[tuple[str, Sequence[Point]]],
    title: str,
    names: tuple[str, str],
    *,
    ideal: bool = False,
    duration: bool = False,
    ordinal: bool = False,
) -> dict[str, Any]:
    """Lines through points on logarithmic axes: at most eight, each with its own marker.

    `names`: names of the axes. `ideal`: draw a dashed line y = x. `duration`: y is a time in nanoseconds. `ordinal`: x
    is linear and counts from 1.
    """
    points = [point for _, each in series for point in each]
    xs = sorted({point.x for point in points})
    horizontal = axis(xs, _PLOT_LEFT, WIDTH - 12, margin=1.12)
    if ordinal:
        horizontal = Axis(0.5, xs[-1] + 0.5, _PLOT_LEFT, WIDTH - 12, even=True)
    ends = [end for point in points for end in (point.low, point.high) if end > 0]
    vertical = axis([*ends, *([xs[0], xs[-1]] if ideal else [])], _PLOT_BOTTOM, _PLOT_TOP)
    found = [
        {
            "name": label(name, 26),
            "index": number,
            "x": 4 + (WIDTH / 2) * (number % 2),
            "y": _PLOT_BOTTOM + 44 + 13 * (number // 2),
            "points": [
                {
                    "x": horizontal.at(point.x),
                    "y": vertical.at(point.y),
                    "low": vertical.at(point.low),
                    "high": vertical.at(point.high),
                    "tip": f"{name}: {point.tip}",
                }
                for point in each
            ],
        }
        for number, (name, each) in enumerate(series)
    ]
    return {
        "title": title,
        "series": found,
        "x_ticks": [
            {"at": horizontal.at(value), "text": tick(value)} for value in (xs if len(xs) < 7 else horizontal.ticks())
        ],
        "y_ticks": [
            {"at": vertical.at(value), "text": units.time(value) if duration else tick(value)}
            for value in vertical.ticks()
        ],
        "names": names,
        "ideal": {
            "x": horizontal.at(xs[0]),
            "y": vertical.at(xs[0]),
            "to_x": horizontal.at(xs[-1]),
            "to_y": vertical.at(xs[-1]),
        }
        if ideal
        else None,
        "left": _PLOT_LEFT,
        "right": WIDTH - 12,
        "top": _PLOT_TOP,
        "bottom": _PLOT_BOTTOM,
        "height": _PLOT_BOTTOM + 38 + 13 * ceil(len(series) / 2),
    }
