"""One row for each kernel that ran, with its Runs folded below. Failures come first and are open.

Kernels that could not run are listed in one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritmark.harness.record import DIMENSIONS, Record, Run, Status
from tritmark.harness.report import answer, load
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
    """Remarks on a Run: failures, doubts, limits and choices."""
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
        reported = verdict.status in {Status.FAIL, Status.ERROR, Status.AMBIGUOUS}
        if reported or (name == "accuracy" and verdict.status is not Status.PASS):
            found.append(f"{name} {verdict.status.value}: {verdict.reason}")
        elif verdict.status is Status.PASS and verdict.reason:
            found.append(f"{name}: {verdict.reason}")
    if run.accuracy.failed_case:
        found.append(f"failed case: {run.accuracy.failed_case}")
    power = answer.power(run)
    if power:
        found.append(power)
    if run.receipt is not None and run.receipt.note:
        found.append(run.receipt.note)
    if run.receipt is not None and run.receipt.tuned:
        found.append(f"tuned, faster here than the built-in choice: {run.receipt.tuned}")
    surroundings = load.summary_of(run)
    if surroundings:
        found.append(surroundings)
    return found


def _ran(kernel: groups.KernelRuns) -> bool:
    """Whether any dimension of the kernel was judged."""
    statuses = {run.verdict(dimension).status for run in kernel.runs for dimension in DIMENSIONS}
    return statuses != {Status.NOT_RUN}


def _causes(left_out: Sequence[groups.KernelRuns]) -> list[tuple[str, list[groups.KernelRuns]]]:
    """Causes why kernels did not run, the most common first, each with its kernels."""
    found: dict[str, list[groups.KernelRuns]] = {}
    for kernel in left_out:
        reason = next(iter(groups.causes(kernel.runs, "accuracy")), "")
        found.setdefault(reason or "the Record states no reason", []).append(kernel)
    return sorted(found.items(), key=lambda both: -len(both[1]))


def _context(record: Record) -> dict[str, Any] | None:
    if not record.runs:
        return None
    kernels = groups.kernels(record)
    left_out = [kernel for kernel in kernels if not _ran(kernel)]
    rows = [_row(kernel) for kernel in kernels if _ran(kernel)]
    return {
        "rows": rows,
        "fine": [row for row in rows if row["fine"]],
        "left_out": left_out,
        "causes": _causes(left_out),
        "notes": notes,
        "several": len(groups.devices(record)) > 1,
    }


SECTION = Section("verdicts", "Verdicts", "verdicts.html", _context)
