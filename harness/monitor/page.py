"""The report as one HTML file, in the style of the reports of Records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritmark.harness.monitor.compare import SessionVerdict
from tritmark.harness.monitor.rows import SeriesRow
from tritmark.harness.monitor.summary import LIMITS, Report, moment
from tritmark.harness.monitor.text import compared, cores, name, sparkline
from tritmark.harness.report import chart
from tritmark.harness.report.page import document, put
from tritmark.harness.text import units

NAME = "monitor.html"
_MOST_PLOTS = 12
_MOST_ROWS = 50
"""Of the table of a plot."""
_MOST_SESSIONS = 30
"""More are folded."""
_MARKS = {
    SessionVerdict.SLOWER: "slower",
    SessionVerdict.FASTER: "faster",
    SessionVerdict.SAME: "same",
    SessionVerdict.UNCLEAR: "unsure",
    SessionVerdict.NEW: "not-run",
}
"""Classes of the verdicts in style.css."""


def build(report: Report, folder: Path) -> Path:
    """Write the page to `folder` atomically and return its path. Raises OSError if it cannot be written."""
    return put(folder, NAME, render(report))


def render(report: Report) -> str:
    """The page."""
    # What changed first, then what took the most time.
    urgent = sorted(report.rows, key=lambda row: row.judgement.verdict is not SessionVerdict.SLOWER)
    plotted = [row for row in urgent if len(row.trend.points) > 1]
    return document(
        "monitor.html",
        report=report,
        headline=report.headline,
        span=f"{moment(report.since)} to {moment(report.until)} UTC",
        limits=LIMITS,
        moment=moment,
        rows=[(row, name(row), *_change(row), _trend(row)) for row in report.rows],
        slower=[(row, name(row)) for row in report.slower],
        plots=[_trend_of(row) for row in plotted[:_MOST_PLOTS]],
        more=max(0, len(plotted) - _MOST_PLOTS),
        newest=report.sessions[:_MOST_SESSIONS],
        older=report.sessions[_MOST_SESSIONS:],
        cores=cores,
        marks=_MARKS,
    )


def _change(row: SeriesRow) -> tuple[str, str]:
    """The change of the newest session, and the largest that the earlier ones predict."""
    change, _, limit = compared(row.judgement).removesuffix(")").partition(" (")
    return change, f"{limit} %" if limit else ""


def _trend(row: SeriesRow) -> str:
    return sparkline([each.median_ns for each in row.trend.points])


def _trend_of(row: SeriesRow) -> dict[str, Any]:
    """A plot, and its figures as a table."""
    rows = list(zip(row.trend.points, row.trend.judgements, strict=True))[::-1]
    left_out = max(0, len(rows) - _MOST_ROWS)
    return {"name": name(row), "plot": _plot(row), "rows": rows[:_MOST_ROWS], "left_out": left_out}


def _plot(row: SeriesRow) -> dict[str, Any]:
    points = [
        chart.Point(
            number,
            each.median_ns,
            each.median_ns,
            each.median_ns,
            f"{moment(each.at)}, {units.time(each.median_ns)}, {judged.verdict}: {judged.why}",
        )
        for number, (each, judged) in enumerate(zip(row.trend.points, row.trend.judgements, strict=True), 1)
    ]
    title = f"Median time of a call in each session: {name(row)}"
    labels = ("session, the oldest first", "median of a call")
    return chart.lines([("median", points)], title, labels, duration=True, ordinal=True)
