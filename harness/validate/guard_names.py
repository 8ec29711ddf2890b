"""Names of the guards, and the faults they report. A verdict lists the guards that reported a fault in `caught_by`.

A candidate can turn off the guards that run in its process: the checks of Bench on inputs, runs, threads and late
outputs, and the floor. The others watch from outside: values, poison, zones, pages, audited outputs, the clock, threads
at work and the end of the process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tritmark.harness.errors import Failure, failure_of


class Guard(StrEnum):
    """In the order in which a candidate meets them."""

    VALUES = "values"
    """An output that differs from the reference by more than the op admits, on fresh data in fresh memory."""
    POISON = "poison"
    """Elements that are never written."""
    ZONES = "zones"
    """A write next to an array, down to one byte."""
    PAGES = "pages"
    """A read or write next to an array, at a guard page."""
    INPUTS = "inputs"
    """An input that was changed, also within the timed loop."""
    NONFINITE = "nonfinite"
    """NaN or infinity that a kernel must report and does not."""
    NAME = "name"
    """A launch that ran a kernel other than the named one."""
    RUNS = "runs"
    """Runs that were not counted, or counted but not made."""
    THREADS = "threads"
    """Threads beyond those allowed, and threads that outlive the call."""
    CRASH = Failure.CRASH.value
    """A process that a signal ended."""
    EXIT = Failure.EXIT.value
    """A process that ended by itself."""
    HANG = Failure.HANG.value
    """A call that does not return within its time."""
    MEMORY = Failure.MEMORY.value
    """More memory than allowed."""
    PROTOCOL = Failure.PROTOCOL.value
    """A malformed reply, or a closed connection."""
    ERROR = Failure.ERROR.value
    """An exception."""
    DEVICE = Failure.DEVICE.value
    """Races, missing barriers and out-of-bounds accesses in the simulator; on a GPU, errors of the driver."""
    AUDIT = "audit"
    """Incorrect, stale or missing outputs in the timed loop, after its data was exchanged at random times."""
    FLOOR = "floor"
    """A time below the physical floor."""
    CLOCK = "clock"
    """A claimed time that neither the parent's clock nor the CPU time of judged laps confirms."""
    STATE = "state"
    """Settings, signals, timers, files, threads or child processes that a call changed."""
    LEAK = Failure.LEAK.value
    """Memory or file descriptors that grow from call to call."""
    WORKSPACE = "workspace"
    """Scratch memory beyond the declared workspace, or far beyond the size of the inputs."""
    LATE = "late"
    """Outputs that are written after the call returned."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """A fault that a guard reports."""

    guard: Guard
    text: str

    def __str__(self) -> str:
        return f"guard {self.guard}: {self.text}"


def guard_of(error: BaseException) -> Guard:
    """The guard for an exception of a candidate or of its process."""
    kind = failure_of(error)
    # A fault of the session is no verdict: the caller of the worker raises it again.
    return Guard.ERROR if kind is Failure.ENVIRONMENT else Guard(kind.value)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """The guards among those names, each once, in the order in which a verdict lists them."""
    found = frozenset(names)
    return tuple(guard.value for guard in Guard if guard in found)
