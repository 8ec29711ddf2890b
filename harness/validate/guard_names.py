"""The guards by name: what each catches, and how the reason of a verdict shows that it did.

A candidate in the same process as its guards can turn off what lives there: what Bench says of inputs, runs, threads and late outputs, and
the floor. Values, poison, zones, pages, audited outputs, clock, threads at work and the process's end are seen from outside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard. `shows` is a regular expression that its reasons match and no others do."""

    name: str
    catches: str
    shows: str


GUARDS = (
    Guard("values", "an output that is not what the reference says, judged on fresh data in fresh memory", r"\bis \S+, expected "),
    Guard("poison", "elements that are never written", r"elements of \w+ are never written"),
    Guard("zones", "a write next to an array, down to one byte", r"it wrote outside \w+"),
    Guard("pages", "an access next to an array, read or write, at a page that traps", r"guard pages:"),
    Guard("inputs", "inputs that are changed, also within the timed loop", r"the input \w+ was changed|guard inputs:"),
    Guard("nonfinite", "NaN or infinity that a kernel has to report and does not", r"of \w+ is reported as at|as not finite, and all are"),
    Guard("name", "a launch that ran something else than what it is called", r"ran in place of"),
    Guard("runs", "runs that are not counted, or counted without having been made", r"does not count its runs|guard runs:"),
    Guard("threads", "threads beyond those allowed, and threads that outlive the call", r"and \d+ were allowed|guard threads:"),
    Guard("crash", "a process that was killed by a signal or ended by itself", r"was killed by SIG|ended with exit status"),
    Guard("hang", "a call that does not return within its time", r"did not return from"),
    Guard("memory", "more memory than allowed", r"were allowed, and was killed|MemoryError"),
    Guard("protocol", "a reply that is none, or a connection that was closed", r"sent something else than|closed its end"),
    Guard("error", "an exception", r"\b\w*(Error|Exception|Exit|Interrupt): "),
    Guard("device", "races, missing barriers, accesses out of bounds, seen by the simulator", r"DeviceFaultError: "),
    Guard("audit", "wrong, stale or missing outputs in the timed loop, after its data was exchanged at random moments", r"guard audit:"),
    Guard("floor", "a time under the physical floor", r"guard floor:"),
    Guard("clock", "a claimed time that the parent's own clock does not confirm", r"guard clock:"),
    Guard("state", "settings, signals, timers, files, threads, children that are not as they were found", r"guard state:"),
    Guard("leak", "memory that grows from call to call", r"leaks \S+ (bytes|descriptors)|maps \S+ bytes and never gives"),
    Guard("workspace", "scratch memory beyond what the variant declares", r"memory beyond inputs and outputs and declares"),
    Guard("late", "outputs that are written after the call returned", r"guard late:"),
)
"""In the order in which a candidate meets them."""


def caught_by(reason: str) -> frozenset[str]:
    """The names of the guards that a verdict's reason shows."""
    return frozenset(guard.name for guard in GUARDS if re.search(guard.shows, reason))
