"""Efficiency: SIMD against plain C, the share of the cache's rate, and the best thread count."""

from __future__ import annotations

from typing import Any

from tritmark.harness.derived import best_threads, cache_efficiency, simd_efficiency
from tritmark.harness.record import Record, Run
from tritmark.harness.report.section import Section
from tritmark.harness.text import units

_MOST_ROWS = 120


def _row(record: Record, run: Run) -> dict[str, Any] | None:
    simd, cache, threads = simd_efficiency(record, run), cache_efficiency(record, run), best_threads(run)
    if isinstance(simd, str) and isinstance(cache, str) and threads is None:
        return None
    return {
        "run": run,
        "simd": None if isinstance(simd, str) else simd,
        "simd_why": simd if isinstance(simd, str) else "",
        "speedup": ""
        if isinstance(simd, str)
        else f"{units.number(simd.speedup)}x ({units.number(simd.low)} to {units.number(simd.high)})",
        "cache": None if isinstance(cache, str) else cache,
        "cache_why": cache if isinstance(cache, str) else "",
        "threads": threads,
    }


def _context(record: Record) -> dict[str, Any] | None:
    rows = [row for run in record.runs if (row := _row(record, run)) is not None]
    if not rows:
        return None
    return {"rows": rows[:_MOST_ROWS], "more": max(0, len(rows) - _MOST_ROWS)}


SECTION = Section("efficiency", "Efficiency", "efficiency.html", _context, about="vectors, caches, best thread count")
