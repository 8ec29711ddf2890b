"""How an invocation ended beyond pass and fail: what could not be decided, what was not judged and why, and the exit
status for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tritmark.harness.cli import exit_status
from tritmark.harness.record import DIMENSIONS, Record, Run, Status
from tritmark.harness.text.outcome import outcome


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A dimension of a kernel that was asked for and judged in none of its Runs."""

    kernel: str
    dimension: str
    reason: str


def unjudged(runs: Sequence[Run]) -> Iterator[Unjudged]:
    """What a PASS does not cover although nobody left it out on purpose.

    Not counted: what has a cause (the user chose not to have it, or the machine lacks what the kernel needs), peers
    that are not installed (they are optional), and what follows from a failure, which has a status of its own.
    """
    kernels: dict[str, list[Run]] = {}
    for run in runs:
        kernels.setdefault(run.kernel, []).append(run)
    for kernel, of in kernels.items():
        if any(run.accuracy.failed for run in of):
            continue
        for dimension in DIMENSIONS:
            verdicts = [run.verdict(dimension) for run in of]
            if dimension == "cross" or any(verdict.status is not Status.NOT_RUN for verdict in verdicts):
                continue
            reasons = [each.reason for each in verdicts if each.cause is None]
            if reasons:
                yield Unjudged(kernel, dimension, reasons[0])


def status_of(record: Record, *, strict: bool) -> int:
    """FAILED, UNTRIED where the Record holds nothing, or PASSED; `strict` tells apart from PASSED what was not decided
    and what was not judged."""
    found = outcome(record)
    if found.failed:
        return exit_status.FAILED
    if found.empty:
        return exit_status.UNTRIED
    if strict and found.status is Status.AMBIGUOUS:
        return exit_status.AMBIGUOUS
    if strict and (found.layers.get(Status.NOT_RUN) or next(unjudged(record.own), None) is not None):
        return exit_status.UNJUDGED
    return exit_status.PASSED
