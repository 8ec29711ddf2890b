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
    best: dict[str, dict[tuple[str, int], float]]
    """For each kernel, the fraction of the ceiling at each workload and thread count: cold, or hot if it has no cold
    figure."""


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A file that is not a Record or cannot be read. It is left unchanged."""

    name: str
    reason: str


def row(record: Record, page: str, *, refuted: bool = False) -> Row:
    """The line of a Record."""
    from tritmark.harness.report.compare import noise

    floor = noise(record)
    best: dict[str, dict[tuple[str, int], float]] = {}
    for run in groups.steady(groups.sound(record)):
        part = groups.part(run.performance.cold or run.performance.hot)
        if part:
            best.setdefault(f"{run.kernel}, {record.suite}", {})[run.workload.id, run.threads] = part
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
    means = {name: found for name, taken in lines.items() if len(found := _means(name, taken)) > 1}

    def spread(name: str) -> float:
        return max(means[name].values()) / min(means[name].values())

    plots = []
    for name in sorted(means, key=lambda name: (-spread(name), name))[:_MOST_PLOTS]:
        points, taken = [], lines[name]
        for place, each in enumerate(taken):
            percent = 100 * means[name][each.id]
            tip = f"{each.created}, commit {each.commit or 'unknown'}: {percent:.1f} %"
            points.append(chart.Point(place + 1, percent, percent, percent, tip))
        title = f"Percent of the ceiling of {name} over the Records; the table below has the same figures"
        plot = chart.lines(
            [("mean fraction of the ceiling", points)], title, ("Record, the oldest first", "percent"), ordinal=True
        )
        plots.append({"name": name, "plot": plot, "rows": [(each, means[name][each.id]) for each in taken]})
    return {
        "id": rows[0].machine_id,
        "name": rows[-1].machine,
        "rows": rows[::-1],
        "plots": plots,
        "more": max(0, len(means) - len(plots)),
    }


def _means(name: str, rows: Sequence[Row]) -> dict[str, float]:
    """By Record id, the mean fraction of a kernel at the places that all of these Records have: a mean over other
    workloads would look like a change. Empty without such a place."""
    common = set.intersection(*(set(each.best[name]) for each in rows))
    found = {each.id: groups.mean(each.best[name][place] for place in common) for each in rows}
    return {id: mean for id, mean in found.items() if mean}


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
