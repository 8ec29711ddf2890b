"""Every kernel's verdict in a row, and its single Runs folded away under it: what failed comes first, and open."""

from __future__ import annotations

from typing import Any

from tritmark.harness.record import Record, Run, Status
from tritmark.harness.report import answer
from tritmark.harness.report.section import Section
from tritmark.harness.text import groups


def _row(kernel: groups.KernelRuns) -> dict[str, Any]:
    runs = kernel.runs
    cold = [groups.part(run.performance.cold) for run in runs]
    return {
        "kernel": kernel,
        "accuracy": groups.worst(run.accuracy.status for run in runs),
        "cases": sum(run.accuracy.cases for run in runs),
        "elements": sum(run.accuracy.elements for run in runs),
        "mismatches": sum(run.accuracy.mismatches for run in runs),
        "performance": groups.worst(run.performance.status for run in runs),
        "measured": sum(run.performance.cold is not None or run.performance.hot is not None for run in runs),
        "cold": groups.mean(cold),
        "memory": groups.worst(run.memory.status for run in runs),
        "cross": groups.worst(run.cross.status for run in runs),
        "count": len(runs),
        "fine": kernel.status is Status.PASS,
        "open": kernel.status in {Status.FAIL, Status.ERROR},
    }


def notes(run: Run) -> list[str]:
    """What a reader has to know of a Run that did not simply pass."""
    found = []
    first = run.accuracy.first
    if first is not None:
        place = ", ".join(map(str, first.index))
        found.append(f"first divergence: {first.output}[{place}] is {first.found}, expected {first.expected}")
    for name, verdict in (
        ("accuracy", run.accuracy),
        ("performance", run.performance),
        ("memory", run.memory),
        ("cross", run.cross),
    ):
        told = verdict.status in {Status.FAIL, Status.ERROR, Status.AMBIGUOUS}
        if told or (name == "accuracy" and verdict.status is not Status.PASS):
            found.append(f"{name} {verdict.status.value}: {verdict.reason}")
        elif verdict.status is Status.PASS and verdict.reason:
            found.append(f"{name}: {verdict.reason}")
    if run.accuracy.failed_case:
        found.append(f"failed on: {run.accuracy.failed_case}")
    power = answer.power(run)
    if power:
        found.append(power)
    if run.receipt is not None and run.receipt.note:
        found.append(run.receipt.note)
    if run.receipt is not None and run.receipt.tuned:
        found.append(f"as was found to be faster here than the built-in choice: {run.receipt.tuned}")
    return found


def _context(record: Record) -> dict[str, Any] | None:
    if not record.runs:
        return None
    rows = [_row(kernel) for kernel in groups.kernels(record)]
    return {
        "rows": rows,
        "fine": [row for row in rows if row["fine"]],
        "notes": notes,
        "several": len(groups.devices(record)) > 1,
    }


SECTION = Section("verdicts", "Verdicts", "verdicts.html", _context)
