"""Memory of each kernel's calls: use beyond the arguments, persistent memory, and leaks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tritmark.harness.record import MemoryUse, Record, Run, Slope, Status
from tritmark.harness.report.section import Section
from tritmark.harness.text import groups, units

_MOST_ROWS = 200
_TELLING = {Status.FAIL, Status.ERROR, Status.AMBIGUOUS}


def growth(slope: Slope | None) -> str:
    """Growth in bytes per call with its interval; "0" if nothing grew."""
    if slope is None:
        return units.NONE
    if slope.low == slope.high == 0:
        return "0"
    return f"{units.number(slope.median)} ({units.number(slope.low)} to {units.number(slope.high)})"


def peak(use: MemoryUse) -> int | None:
    """The peak of device memory, or of host memory if the device has no memory of its own."""
    return use.host_peak if use.device_peak is None else use.device_peak


def _rows(runs: Iterable[Run]) -> list[Run]:
    """The Runs of each kernel that failed, or else its largest workload; failures first."""
    kept: list[Run] = []
    for same in groups.by_kernel(runs).values():
        reported = [run for run in same if run.memory.status in _TELLING]
        kept += reported or [max(same, key=lambda run: run.memory.inputs + run.memory.outputs)]
    return sorted(kept, key=lambda run: groups.WORST_FIRST.index(run.memory.status))


def _context(record: Record) -> dict[str, Any] | None:
    runs = [run for run in record.runs if run.memory.status is not Status.NOT_RUN]
    if not runs:
        return None
    rows = _rows(runs)
    statuses = {status: sum(run.memory.status is status for run in runs) for status in groups.WORST_FIRST}
    return {
        "rows": rows[:_MOST_ROWS],
        "more": max(0, len(rows) - _MOST_ROWS),
        "several": len(groups.devices(record)) > 1,
        "device_leaks": any(run.memory.device_leak is not None for run in runs),
        "counts": [(status, count) for status, count in statuses.items() if count],
        "every": [run for same in groups.by_kernel(runs).values() for run in same] if len(runs) > len(rows) else [],
        "most": _MOST_ROWS,
        "growth": growth,
        "peak": peak,
    }


SECTION = Section("memory", "Memory", "memory.html", _context, about="use, persistent memory and leaks of calls")
