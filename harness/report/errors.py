"""Differences of outputs from the reference: the Runs of each op by their largest error in units of the last place,
and the worst inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tritmark.harness.record import Record, Run, Status
from tritmark.harness.report.heatmap import level
from tritmark.harness.report.section import Section
from tritmark.harness.text import groups

_BINS: tuple[tuple[str, float], ...] = (
    ("same bits", 0.0),
    ("to ½", 0.5),
    ("to 1", 1.0),
    ("to 2", 2.0),
    ("to 8", 8.0),
    ("more", float("inf")),
)
"""Names and upper ends, in units of the last place."""
_MOST_WORST = 10


def place(ulp: float) -> int:
    """The index of the bin for an error in ulp."""
    return next(number for number, (_, end) in enumerate(_BINS) if ulp <= end)


def _row(key: tuple[str, ...], runs: list[Run]) -> dict[str, Any]:
    counts = [0] * len(_BINS)
    for run in runs:
        if run.accuracy.largest_ulp is not None:
            counts[place(run.accuracy.largest_ulp)] += 1
    total = sum(counts)
    return {
        "key": key,
        "cells": [{"count": count, "level": level(count / total)} if count else None for count in counts],
        "untold": len(runs) - total,
        "elements": sum(run.accuracy.elements for run in runs),
        "mismatches": sum(run.accuracy.mismatches for run in runs),
        "families": sorted({run.accuracy.family for run in runs if run.accuracy.family}),
        "ulp": _most(run.accuracy.largest_ulp for run in runs),
        "error": _most(run.accuracy.largest_error for run in runs),
    }


def _most(taken: Iterable[float | None]) -> float | None:
    return max((each for each in taken if each is not None), default=None)


def _context(record: Record) -> dict[str, Any] | None:
    judged = [run for run in record.runs if run.accuracy.status in {Status.PASS, Status.FAIL} and run.accuracy.elements]
    if not judged:
        return None
    several = len(groups.devices(record)) > 1
    rows = [_row(key if several else key[1:], runs) for key, runs in groups.by_key(judged).items()]
    far = sorted(
        (run for run in judged if run.accuracy.largest_ulp), key=lambda run: -(run.accuracy.largest_ulp or 0.0)
    )
    layers = sorted(
        (max((each.largest_error for each in layer.schemes), default=0.0) for layer in record.layers), reverse=True
    )
    return {
        "bins": [name for name, _ in _BINS],
        "rows": rows,
        "worst": far[:_MOST_WORST],
        "judged": len(judged),
        "exact": sum(run.accuracy.largest_ulp == 0 and not run.accuracy.mismatches for run in judged),
        "layers": layers,
    }


SECTION = Section("errors", "Errors", "errors.html", _context, about="differences of outputs from the reference")
