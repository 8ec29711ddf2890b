"""One page for many Records: the result and the report of each, and the speed of kernels over the Records of one
machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritmark.harness.errors import RecordError
from tritmark.harness.record import Record
from tritmark.harness.report import chart, machine, summary
from tritmark.harness.text import groups, units
from tritmark.harness.text.distrust import distrust
from tritmark.harness.text.outcome import FAILED, outcome

_MOST_PLOTS = 12
NAME = "index.html"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the page. It keeps no reference to the Record, which may be large."""

    id: str
    page: str
    """File name of its report, in the folder of this page."""
    created: str
    suite: str
    commit: str
    status: str
    headline: str
    machine_id: str
    machine: str
    runs: int
    failed: int
    proposals: int
    noise: float | None
    simulated: bool
    refuted: bool
    """`tritmark verify` contradicts it."""
    best: dict[str, float]
    """Kernel to its mean fraction of the ceiling: cold, or hot if it has no cold figure."""


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A file that is not a Record or cannot be read. It is left unchanged."""

    name: str
    reason: str


def row(record: Record, page: str, *, refuted: bool = False) -> Row:
    """The line of a Record."""
    from tritmark.harness.report.compare import noise

    floor = noise(record)
    best: dict[str, float] = {}
    for kernel, runs in groups.by_kernel(groups.steady(groups.sound(record))).items():
        taken = groups.mean(groups.part(run.performance.cold or run.performance.hot) for run in runs)
        if taken:
            best[f"{kernel}, {record.suite}"] = taken
    return Row(
        id=record.id,
        page=page,
        created=record.created,
        suite=record.suite,
        commit=(record.environment.commit or "")[:12],
        status=summary.status(record),
        headline=summary.headline(record),
        machine_id=record.machine.id,
        machine=machine.one_line(record),
        runs=len(record.runs),
        failed=outcome(record).count(*FAILED),
        proposals=len(record.proposals),
        noise=floor[0] if floor else None,
        simulated=bool(groups.simulated(record)),
        refuted=refuted,
        best={} if refuted else best,
    )


def over_records(rows: list[Row]) -> dict[str, Any]:
    """The Records of one machine, the newest first, and curves of kernels that several Records of a suite measured."""
    lines: dict[str, list[Row]] = {}
    for each in rows:
        for name in each.best:
            lines.setdefault(name, []).append(each)
    several = {name: taken for name, taken in lines.items() if len(taken) > 1}

    def spread(name: str) -> float:
        values = [each.best[name] for each in several[name]]
        return max(values) / min(values)

    plots = []
    for name in sorted(several, key=lambda name: (-spread(name), name))[:_MOST_PLOTS]:
        points = []
        for place, each in enumerate(several[name]):
            percent = 100 * each.best[name]
            tip = f"{each.created}, commit {each.commit or 'unknown'}: {percent:.1f} %"
            points.append(chart.Point(place + 1, percent, percent, percent, tip))
        title = f"Percent of the ceiling of {name} over the Records; the table below has the same figures"
        plot = chart.lines(
            [("mean fraction of the ceiling", points)], title, ("Record, the oldest first", "percent"), ordinal=True
        )
        plots.append({"name": name, "plot": plot, "rows": [(each, each.best[name]) for each in several[name]]})
    return {
        "id": rows[0].machine_id,
        "name": rows[-1].machine,
        "rows": rows[::-1],
        "plots": plots,
        "more": max(0, len(several) - len(plots)),
    }


def landing(rows: Sequence[Row], unread: Sequence[UnreadableFile] = ()) -> str:
    """The page for these Records as one HTML document, with one table for each machine."""
    from tritmark.harness.report.page import document

    by_machine: dict[str, list[Row]] = {}
    for each in sorted(rows, key=lambda each: (each.created, each.id)):
        by_machine.setdefault(each.machine_id, []).append(each)
    newest_first = sorted(by_machine.values(), key=lambda same: same[-1].created, reverse=True)
    failed = sum(each.status == "FAIL" for each in rows)
    headline = f"{units.counted(len(rows), 'Record')}, {failed:,} with failures" if rows else "No Records"
    return document(
        "landing.html", machines=[over_records(same) for same in newest_first], unread=unread, headline=headline
    )


def build_all(paths: Sequence[Path], folder: Path) -> Path:
    """Write `folder`/index.html for the Records in `paths`, and their missing or outdated reports. Return its path.

    The page lists files that cannot be read or were changed, with the reason, and marks Records that contradict
    themselves. Raises OSError if a page cannot be written.
    """
    from tritmark.harness.report.page import build, page_name, put
    from tritmark.harness.report.section import PageContext
    from tritmark.harness.verify import believed

    rows: list[Row] = []
    unread: list[UnreadableFile] = []
    for path in paths:
        try:
            record, faults = believed(path)
            reported = distrust(faults)
            page = folder / f"{page_name(record.id, folder, reported)}.html"
            if not page.is_file() or page.stat().st_mtime < path.stat().st_mtime:
                page = build(record, folder, PageContext(distrust=reported))
        except RecordError as error:
            unread.append(UnreadableFile(path.name, str(error)))
            continue
        rows.append(row(record, page.name, refuted=bool(faults)))
    return put(folder, NAME, landing(rows, unread))
