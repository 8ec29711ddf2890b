"""The exit status of a Record, and the dimensions that were not judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tritmark.harness.cli import exit_status
from tritmark.harness.record import DIMENSIONS, Record, Run, Status
from tritmark.harness.text.outcome import outcome


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A requested dimension of a kernel that was judged in none of its Runs."""

    kernel: str
    dimension: str
    reason: str


def unjudged(runs: Sequence[Run]) -> Iterator[Unjudged]:
    """Dimensions that a PASS does not cover, although they were requested.

    Not counted: dimensions with a cause (excluded by the user, or not supported by the machine), peers that are not
    installed, and consequences of a failure, which has its own exit status.
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
    """FAILED, UNTRIED for an empty Record, or PASSED. With `strict`, also AMBIGUOUS and UNJUDGED."""
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
