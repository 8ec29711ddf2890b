"""How each kernel accesses memory, as a simulator of its device traced it. Nothing here was measured."""

from __future__ import annotations

from typing import Any

from tritmark.harness.record import Record
from tritmark.harness.report.section import Section
from tritmark.harness.spec import DEVICE_MEMORY, SHARED_MEMORY, KernelAccesses, TracedAccess

_MOST_ROWS = 120


def _row(found: KernelAccesses) -> dict[str, Any]:
    requests, sectors, least = found.totals(DEVICE_MEMORY)
    shared_requests, passes, fewest = found.totals(SHARED_MEMORY)
    return {
        "kernel": found.kernel,
        "axes": ", ".join(f"{name}={size}" for name, size in found.axes.items()),
        "requests": requests,
        "per_request": sectors / requests if requests else None,
        "least": least / requests if requests else None,
        "coalesced": least / sectors if sectors else None,
        "passes": passes / shared_requests if shared_requests else None,
        "fewest": fewest / shared_requests if shared_requests else None,
        "conflicts": 1 - fewest / passes if passes else None,
    }


def _worse(found: KernelAccesses) -> list[tuple[str, TracedAccess]]:
    return [(found.kernel, each) for each in found.accesses if each.transactions > each.least]


def _context(record: Record) -> dict[str, Any] | None:
    if not record.accesses:
        return None
    traced = [each for each in record.accesses if each.accesses]
    notes: dict[str, list[str]] = {}
    for each in record.accesses:
        if each.note:
            notes.setdefault(each.note, []).append(each.kernel)
    # The lowest share of useful transactions first: that is what a reader looks for.
    rows = sorted(
        map(_row, traced),
        key=lambda row: (1.0 if row["coalesced"] is None else row["coalesced"], -(row["conflicts"] or 0.0)),
    )
    worse = sorted(
        (pair for each in traced for pair in _worse(each)), key=lambda pair: (pair[1].share, -pair[1].requests)
    )
    return {
        "rows": rows[:_MOST_ROWS],
        "more": max(0, len(rows) - _MOST_ROWS),
        "worse": worse[:_MOST_ROWS],
        "worse_more": max(0, len(worse) - _MOST_ROWS),
        "simulators": list(dict.fromkeys(each.simulator for each in traced)),
        "notes": list(notes.items()),
        "known": {run.kernel for run in record.runs},
        "shared": any(row["passes"] is not None for row in rows),
    }


SECTION = Section(
    "access", "Access patterns", "access.html", _context, about="coalescing and bank conflicts, simulated"
)
