"""The guards by name, and what one of them has to say. A verdict keeps the names of those that spoke, in `caught_by`.

A candidate in the same process as its guards can turn off what lives there: what Bench says of inputs, runs, threads
and late outputs, and the floor. Values, poison, zones, pages, audited outputs, clock, threads at work and the process's
end are seen from outside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tritmark.harness.errors import Failure, failure_of


class Guard(StrEnum):
    """In the order in which a candidate meets them."""

    VALUES = "values"
    """An output that is not what the reference says, judged on fresh data in fresh memory."""
    POISON = "poison"
    """Elements that are never written."""
    ZONES = "zones"
    """A write next to an array, down to one byte."""
    PAGES = "pages"
    """An access next to an array, read or write, at a page that traps."""
    INPUTS = "inputs"
    """Inputs that are changed, also within the timed loop."""
    NONFINITE = "nonfinite"
    """NaN or infinity that a kernel has to report and does not."""
    NAME = "name"
    """A launch that ran something else than what it is called."""
    RUNS = "runs"
    """Runs that are not counted, or counted without having been made."""
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
    """A reply that is none, or a connection that was closed."""
    ERROR = Failure.ERROR.value
    """An exception."""
    DEVICE = Failure.DEVICE.value
    """Races, missing barriers, accesses out of bounds, seen by the simulator; on a GPU what its driver reports."""
    AUDIT = "audit"
    """Wrong, stale or missing outputs in the timed loop, after its data was exchanged at random moments."""
    FLOOR = "floor"
    """A time under the physical floor."""
    CLOCK = "clock"
    """A claimed time that the parent's own clock, or the CPU time of judged laps, does not confirm."""
    STATE = "state"
    """Settings, signals, timers, files, threads, children that are not as they were found."""
    LEAK = Failure.LEAK.value
    """Memory or file descriptors that grow from call to call."""
    WORKSPACE = "workspace"
    """Scratch memory beyond what the variant declares, or far beyond what its inputs take."""
    LATE = "late"
    """Outputs that are written after the call returned."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """What a guard says of a kernel."""

    guard: Guard
    text: str

    def __str__(self) -> str:
        return f"guard {self.guard}: {self.text}"


def guard_of(error: BaseException) -> Guard:
    """Which guard an exception of a candidate, or of its process, is."""
    kind = failure_of(error)
    # No verdict is made of what the session is to blame for: the caller of the worker raises it again.
    return Guard.ERROR if kind is Failure.ENVIRONMENT else Guard(kind.value)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """The guards among those names, each once, as a verdict keeps them."""
    found = frozenset(names)
    return tuple(guard.value for guard in Guard if guard in found)
