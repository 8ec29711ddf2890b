"""The report for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from rich.console import Console, Group, RenderableType
from rich.text import Text

from tritmark.harness.monitor.advice import MonitorFinding
from tritmark.harness.monitor.compare import SessionJudgement, SessionVerdict
from tritmark.harness.monitor.rows import SeriesRow, SessionLine
from tritmark.harness.monitor.summary import LIMITS, Report, moment
from tritmark.harness.text import units
from tritmark.harness.text.table import filled_table, fit
from tritmark.harness.text.visible import visible

_STYLES = {
    SessionVerdict.SLOWER: "bold red",
    SessionVerdict.FASTER: "green",
    SessionVerdict.UNCLEAR: "yellow",
    SessionVerdict.SAME: "",
    SessionVerdict.NEW: "dim",
}
_MOST_SESSIONS = 20
_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 8


def rendered(report: Report, width: int) -> RenderableType:
    """The whole report."""
    return Group(*_parts(report, width))


def show(report: Report, console: Console) -> None:
    """Print it."""
    console.print(rendered(report, console.width))


def _parts(report: Report, width: int) -> Iterator[RenderableType]:
    yield Text(report.headline, style="bold red" if report.slower else "bold")
    yield Text(f"{moment(report.since)} to {moment(report.until)} UTC, {_one_line(report.host or 'no machine')}")
    for note in report.notes:
        yield Text(f"note: {_one_line(note)}")
    if not report.sessions:
        yield Text("next: run the program with TRITMARK_MONITOR=1, or inside `with tritmark.monitor():`")
        return
    yield Text()
    slow = report.slower
    if slow:
        yield Text("Slower than before", style="bold")
        for row in slow:
            yield Text(f"  {_one_line(f'{name(row)}: {row.judgement.why}')}")
        yield Text()
    yield Text("Kernels, the most time first", style="italic")
    yield Text(_line(_HEAD), style="bold")
    for row in report.rows:
        yield Text(_one_line(name(row)))
        yield _figures(row)
    yield Text()
    head = ("session", "program", "calls", "errors", "slower", "cores", "others", "clock", "GPU", "power", "memory")
    sessions = filled_table(
        "Sessions, the newest first",
        head,
        [_session(each) for each in report.sessions[:_MOST_SESSIONS]],
        head[2:],
    )
    fit(sessions, width)
    yield sessions
    if len(report.sessions) > _MOST_SESSIONS:
        yield Text(f"and {len(report.sessions) - _MOST_SESSIONS} earlier ones")
    for title, findings in (("Health", report.health), ("Advice", report.advice)):
        if findings:
            yield Text()
            yield Text(title, style="bold")
            yield from map(_finding, findings)
    yield Text()
    yield Text(LIMITS, style="dim")


_HEAD = ("calls", "median", "rate", "ceiling", "time", "trend", "newest session")
_WIDTHS = (9, 9, 10, 8, 8)


def _line(cells: Sequence[str]) -> str:
    figures = "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=False))
    return f"{figures}  {cells[5]:<{_MOST_BARS}}  {cells[6]}"


def name(row: SeriesRow) -> str:
    """What a row is about."""
    key = row.series.key
    parts = [f"{row.program}: {key.entry}{' *' if key.asynchronous else ''}", key.kernel, key.shape]
    parts.append(units.counted(key.threads, "thread") if key.threads else "")
    return ", ".join(filter(None, parts))


def compared(judged: SessionJudgement) -> str:
    """The change of the newest session, and the largest that the earlier ones predict."""
    if judged.ratio is None or judged.high is None:
        return ""
    return f"{100 * (judged.ratio - 1):+.0f} % (limit {100 * (judged.high - 1):+.0f})"


def _figures(row: SeriesRow) -> Text:
    verdict = row.judgement.verdict
    cells = (
        units.short(row.calls),
        units.time(row.series.median_ns),
        units.rate(row.series.bytes_per_second, "bytes/s"),
        units.percent(row.ceiling),
        units.percent(row.share_of_time),
        sparkline([each.median_ns for each in row.trend.points]),
    )
    line = Text(_line((*cells, "")))
    return line.append(str(verdict), style=_STYLES[verdict]).append(f" {compared(row.judgement)}")


def sparkline(values: list[float], most: int = _MOST_BARS) -> str:
    """Values as bars, from the least to the largest; a flat line if they differ by less than 5 %. Of more values each
    bar is the median of some."""
    if len(values) < 2:
        return units.NONE
    count = min(most, len(values))
    edges = [number * len(values) // count for number in range(count + 1)]
    shown = [median(values[start:end]) for start, end in pairwise(edges)]
    low, high = min(shown), max(shown)
    if high < 1.05 * low:
        return _BARS[2] * len(shown)
    return "".join(_BARS[round((len(_BARS) - 1) * (each - low) / (high - low))] for each in shown)


def cores(count: float | None) -> str:
    """A number of cores, in hundredths."""
    return units.NONE if count is None else f"{count:.2f}"


def _session(line: SessionLine) -> tuple[str | Text, ...]:
    data = line.data
    return (
        f"{moment(data.started)}{' (nested)' * line.nested}{'' if data.complete else ' (did not end)'}",
        _one_line(data.program),
        units.short(data.calls),
        str(data.errors) if data.errors else "",
        Text(str(line.slower), style="red") if line.slower else "",
        cores(line.own_cores),
        cores(line.other_cores),
        units.rate(line.clock_hz, "Hz"),
        units.NONE if line.gpu_utilization is None else f"{line.gpu_utilization:.0f} %",
        units.NONE if line.power is None else f"{line.power:.0f} W",
        units.size(line.rss),
    )


def _one_line(text: str) -> str:
    """The text, which cannot add lines to the report."""
    return visible(text).replace("\n", "\\n")


def _finding(found: MonitorFinding) -> Text:
    step = f"\n    next: {_one_line(found.next_step)}" if found.next_step else ""
    return Text(_one_line(f"  {found.what} {found.evidence}{'' if found.evidence.endswith('.') else '.'}") + step)
