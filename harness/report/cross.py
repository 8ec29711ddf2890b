"""Cross-validation: each kernel compared with peers and references: which one is correct where they differ, and which
one is faster (peers only)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tritmark.harness.record import PeerComparison, Record, Run, Status
from tritmark.harness.report.section import Section
from tritmark.harness.text import groups

DIFFERS, BROKE, NOISY, PEER_WRONG, MATCH, ABSENT = "differs", "error", "ambiguous", "peer incorrect", "match", "not run"
_WORST_FIRST = (DIFFERS, BROKE, NOISY, PEER_WRONG, MATCH, ABSENT)
_MARKS = {
    DIFFERS: "fail",
    BROKE: "error",
    NOISY: "ambiguous",
    PEER_WRONG: "peer-wrong",
    MATCH: "pass",
    ABSENT: "not-run",
}
"""The class that gives each outcome its shape and colour."""
_BY_STATUS = {Status.FAIL: DIFFERS, Status.ERROR: BROKE, Status.AMBIGUOUS: NOISY, Status.NOT_RUN: ABSENT}
_UNTOLD = {Status.ERROR, Status.AMBIGUOUS, Status.NOT_RUN}
"""Statuses whose reason no other column shows."""
_MOST_DIVERGENCES = 60


def outcome(comparison: PeerComparison) -> str:
    """The result of one comparison in a word."""
    return _BY_STATUS.get(comparison.status) or (PEER_WRONG if comparison.peer_wrong else MATCH)


Pair = list[tuple[Run, PeerComparison]]
"""The comparisons of one kernel with one peer."""


def _cell(pair: Pair) -> dict[str, Any]:
    """The summary of all comparisons of one kernel with one peer."""
    found = {outcome(comparison) for _, comparison in pair}
    word = next(each for each in _WORST_FIRST if each in found)
    done = [(run, each) for run, each in pair if each.match is not None]
    timed = [(run, each) for run, each in done if each.speedup is not None]
    # The longest call: half of the time of a short one is call overhead.
    longest = max(timed, key=lambda both: both[1].peer_ns or 0.0, default=None)
    why = [each.migration_reason for _, each in [longest or done[0]] if each.migration_reason] if done else []
    return {
        "run": pair[0][0],
        "peer": pair[0][1].peer,
        "word": word,
        "mark": _MARKS[word],
        "runs": len(pair),
        "done": len(done),
        "elements": sum(each.elements for _, each in done),
        "mismatches": sum(each.mismatches for _, each in done),
        "largest": max((each.largest_error for _, each in done if each.largest_error is not None), default=None),
        "place": groups.place(longest[0].workload) if longest else "",
        "longest": longest[1] if longest else None,
        "timed": len(timed),
        "recommended": sum(each.migration_recommended for _, each in timed),
        "within_tenth": sum(each.migration_within_tenth is True for _, each in timed),
        "ruled": sum(each.migration_within_tenth is not None for _, each in timed),
        "reasons": list(dict.fromkeys([*why, *(each.reason for _, each in pair if each.status in _UNTOLD)])),
    }


def _pairs(runs: Iterable[Run]) -> dict[tuple[str, str], Pair]:
    found: dict[tuple[str, str], Pair] = {}
    for run in runs:
        for comparison in run.cross.peers:
            found.setdefault((run.kernel, comparison.peer), []).append((run, comparison))
    return found


def _of_op(op: str, runs: list[Run]) -> dict[str, Any]:
    cells = {names: _cell(pair) for names, pair in _pairs(runs).items()}
    peers = list(dict.fromkeys(peer for _, peer in cells))
    kernels = list(dict.fromkeys(kernel for kernel, _ in cells))
    rows = [
        {"kernel": kernel, "anchor": groups.anchor(kernel), "cells": [cells.get((kernel, peer)) for peer in peers]}
        for kernel in kernels
    ]
    ordered = sorted(cells.values(), key=lambda cell: _WORST_FIRST.index(cell["word"]))
    return {"op": op, "peers": peers, "rows": rows, "cells": [cell for cell in ordered if cell["word"] != ABSENT]}


def _divergences(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """The first divergence of each kernel and peer; those with an incorrect kernel come first."""
    found = []
    for pair in _pairs(runs).values():
        differing = [(run, each) for run, each in pair if each.first is not None]
        if differing:
            run, each = min(differing, key=lambda both: _WORST_FIRST.index(outcome(both[1])))
            word = outcome(each)
            found.append({"run": run, "comparison": each, "word": word, "mark": _MARKS[word]})
    return sorted(found, key=lambda row: _WORST_FIRST.index(row["word"]))


def _peers(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Every peer with its version and the reasons why it did not run."""
    named: dict[str, list[PeerComparison]] = {}
    for run in runs:
        for comparison in run.cross.peers:
            named.setdefault(comparison.peer, []).append(comparison)
    return [
        {
            "name": name,
            "reference": any(each.reference for each in all_),
            "versions": list(dict.fromkeys(each.version for each in all_ if each.version)),
            "counts": [sum(outcome(each) == word for each in all_) for word in _WORST_FIRST],
            "absent": list(dict.fromkeys(each.reason for each in all_ if each.status is Status.NOT_RUN)),
        }
        for name, all_ in named.items()
    ]


def _context(record: Record) -> dict[str, Any] | None:
    runs = [run for run in record.runs if run.cross.peers]
    if not runs:
        return None
    ops = {run.op: [other for other in runs if other.op == run.op] for run in runs}
    divergences = _divergences(runs)
    compared = [each for run in runs for each in run.cross.peers if each.match is not None]
    return {
        "ops": [_of_op(op, same) for op, same in ops.items()],
        "words": _WORST_FIRST,
        "peers": _peers(runs),
        "compared": len(compared),
        "references": sum(each.reference for each in compared),
        "timed": sum(each.speedup is not None for each in compared),
        "recommended": sum(each.migration_recommended for each in compared),
        "within_tenth": sum(each.migration_within_tenth is True for each in compared),
        "ruled": sum(each.migration_within_tenth is not None for each in compared),
        "peer_wrong": sum(each.peer_wrong for each in compared),
        "divergences": divergences[:_MOST_DIVERGENCES],
        "more": max(0, len(divergences) - _MOST_DIVERGENCES),
    }


SECTION = Section("cross", "Cross-validation", "cross.html", _context, about="values and times compared with peers")
