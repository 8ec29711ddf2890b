"""Ratios to peers with their intervals: a forest plot of interleaved times."""

from __future__ import annotations

from typing import Any

from tritmark.harness.record import PeerComparison, Record, Run
from tritmark.harness.report import chart
from tritmark.harness.report.section import Section
from tritmark.harness.text import groups, units
from tritmark.harness.text.visible import label

_MOST_ROWS = 48
_MOST_TABLE = 200


def _context(record: Record) -> dict[str, Any] | None:
    timed = [
        (run, each)
        for run in record.runs
        for each in run.cross.peers
        if each.speedup is not None and each.speedup.low > 0
    ]
    if not timed:
        return None
    # Draw the longest calls, as half of the time of a short one is call overhead.
    compared = [(run, each) for run, each in timed if each.speedup is not None and not each.speedup.too_noisy]
    kept = sorted(compared, key=lambda both: -(both[1].peer_ns or 0.0))[:_MOST_ROWS]
    order = {id(each): place for place, (_, each) in enumerate(timed)}
    drawn = sorted(kept, key=lambda both: (_heading(both[0]), order[id(both[1])]))
    title = f"Speed against peers in {units.counted(len(drawn), 'comparison')}; the table has the same figures"
    return {
        "plot": chart.forest([_entry(run, each) for run, each in drawn], title) if drawn else None,
        "rows": drawn + [both for both in timed if both not in drawn][: _MOST_TABLE - len(drawn)],
        "drawn": len(drawn),
        "timed": len(timed),
    }


def _heading(run: Run) -> str:
    words = (word for word in (run.op, run.format, run.dtype) if word != "none")
    return f"{' '.join(words)}, {groups.shape(run.workload)}"


def _entry(run: Run, each: PeerComparison) -> chart.ForestEntry:
    assert each.speedup is not None
    name = f"{label(run.variant, max(8, 21 - len(each.peer)))} / {each.peer}"
    return chart.ForestEntry(_heading(run), name, each.speedup, f"{run.kernel}: {units.times(each.speedup)}")


SECTION = Section("peers", "Speed against peers", "peers.html", _context, about="times interleaved with peers")
