"""Other ways to compute what a kernel failed to compute, and in which order they are tried after which failure.

A kernel that crashed is not trusted with the same data again where another kernel can do the work: other code goes
first. The same kernel is tried again only if it did not run, or if the failure is not its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tritmark.harness.recovery.failures import FailureKind


class Strategy(StrEnum):
    """One way to compute the result after a failure."""

    NONE = "none"
    """Nothing helps, or nothing may help: the failure is raised."""

    # On a device with its own memory
    FREED_MEMORY = "memory freed"
    """Copies of weights on the device and idle memory are freed; then the same kernel."""
    REDUCED_LAUNCH = "reduced launch"
    """The same work in several launches, each with a smaller grid and less memory."""
    OTHER_KERNEL = "another kernel of the device"
    """The kernel of the device with the next lower tier and rank."""
    CONTEXT_ANEW = "context made anew"
    """A new process with a new context on the device; the processes of its other names keep theirs."""
    DEVICE_RESET = "device reset"
    """All processes of this program that recover on the device are ended, so the driver destroys their contexts. Then
    a new process."""
    CPU = "CPU"
    """A kernel of the CPU."""

    # On the CPU
    LOWER_SET = "lower instruction set"
    """The kernel of the next lower instruction set."""
    SCALAR = "scalar"
    """The kernel that needs no instruction set extension."""
    REALIGNED = "realigned copy"
    """Copies of all arrays at addresses that are multiples of 64; then the same kernel."""
    FEWER_THREADS = "one thread"


_ANY_CODE = (Strategy.LOWER_SET, Strategy.SCALAR)
_CRASHED = (*_ANY_CODE, Strategy.REALIGNED, Strategy.FEWER_THREADS)

ON_HOST: Mapping[FailureKind, tuple[Strategy, ...]] = {
    FailureKind.ILLEGAL_INSTRUCTION: _ANY_CODE,
    FailureKind.SEGMENTATION_FAULT: _CRASHED,
    FailureKind.BUS_ERROR: (Strategy.REALIGNED, *_ANY_CODE, Strategy.FEWER_THREADS),
    FailureKind.ARITHMETIC: _CRASHED,
    FailureKind.DIED: _CRASHED,
    FailureKind.HANG: (Strategy.FEWER_THREADS, *_ANY_CODE),
    FailureKind.OUT_OF_MEMORY: (Strategy.FREED_MEMORY, Strategy.FEWER_THREADS, *_ANY_CODE),
    FailureKind.NUMERICAL: (),
    FailureKind.ERROR: _CRASHED,
}
"""Strategies by failure in memory of the host. Other failures have those of ERROR."""

_RESETS = (Strategy.DEVICE_RESET, Strategy.CPU)

ON_DEVICE: Mapping[FailureKind, tuple[Strategy, ...]] = {
    FailureKind.OUT_OF_MEMORY: (Strategy.FREED_MEMORY, Strategy.REDUCED_LAUNCH, Strategy.CPU),
    FailureKind.LAUNCH_REFUSED: (Strategy.REDUCED_LAUNCH, Strategy.OTHER_KERNEL, Strategy.CPU),
    FailureKind.DEVICE_FAULT: (Strategy.CONTEXT_ANEW, *_RESETS),
    FailureKind.CONTEXT_LOST: (Strategy.CONTEXT_ANEW, *_RESETS),
    FailureKind.HARDWARE: _RESETS,
    FailureKind.HANG: _RESETS,
    FailureKind.NOT_LOADED: (Strategy.OTHER_KERNEL, Strategy.CPU),
    FailureKind.NUMERICAL: (),
    FailureKind.ERROR: (Strategy.OTHER_KERNEL, Strategy.CPU),
}
"""Strategies by failure on a device with its own memory. Other failures are crashes of the process that drives it, and
have those of DEVICE_FAULT."""

OWN_FAULT = frozenset(
    {
        FailureKind.DEVICE_FAULT,
        FailureKind.HANG,
        FailureKind.DIED,
        FailureKind.SEGMENTATION_FAULT,
        FailureKind.BUS_ERROR,
        FailureKind.ILLEGAL_INSTRUCTION,
        FailureKind.ARITHMETIC,
    }
)
"""Failures that the kernel itself may have caused: after a new context it does not run again, but the next one."""

PIECES = 4
"""Number of launches into which REDUCED_LAUNCH divides one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How a call is made. None: as the caller asked."""

    strategy: Strategy = Strategy.NONE
    """Why; NONE for the first attempt."""
    device: str
    variant: str | None = None
    threads: int | None = None
    realigned: bool = False
    freed: bool = False
    pieces: int = 1


def ladder(kind: FailureKind, on_device: bool) -> tuple[Strategy, ...]:
    """The strategies after that failure, in order."""
    if on_device:
        return ON_DEVICE.get(kind, ON_DEVICE[FailureKind.DEVICE_FAULT])
    return ON_HOST.get(kind, ON_HOST[FailureKind.ERROR])
