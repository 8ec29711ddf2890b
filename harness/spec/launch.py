"""Launch: a variant bound to its arguments; Receipt: the proof that it ran."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol


class Launch(Protocol):
    """A variant bound to its arguments, ready to run any number of times."""

    def run(self) -> None:
        """Run once and return when the outputs are complete."""

    @property
    def ran(self) -> str:
        """The implementation that ran, as reported by the code that ran ("" before the first run)."""

    @property
    def runs(self) -> int:
        """Number of runs, counted by the code that ran."""

    @property
    def threads_used(self) -> int:
        """Threads that took part in the last run."""

    @property
    def bad(self) -> int:
        """Index (in C order) of the first input element that the contract forbids, found by the kernel; -1 if none."""

    @property
    def pointer(self) -> int | None:
        """Address of the native call for the device's clock, or None if only Python can call it.

        On the host, two pointers are stored there: `int (*function)(void *)` and its argument. Both are valid for the
        lifetime of the launch.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One launch of a function on a device."""

    function: str
    binary: str
    """SHA-256 of the binary that contains the function."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    """Bytes of dynamic shared memory per block."""
    resident: int | None = None
    """Resident blocks per multiprocessor; None if the device does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Facts that a device's launcher collected during the launches."""

    uuid: str = ""
    """UUID of the device that ran it; "" if the device has none."""
    functions: tuple[str, ...] = ()
    """Names of the device functions that were launched."""
    launches: int = 0
    """Number of launches on the device."""
    device_ns: float = 0.0
    """Nanoseconds that the device measured for the runs that it timed; 0 if it timed none."""
    timed_runs: int = 0
    """Number of runs that `device_ns` covers."""
    code_hash: str = ""
    """SHA-256 of the compiled code; "" if the device does not report it."""
    simulated: bool = False
    """True if a simulator ran it in place of the device."""
    launched: tuple[Launched, ...] = ()
    """The distinct launches on the device, in order."""
    tuned: str = ""
    """The tuned choices that ran in place of built-in ones: an instance (`tritmark tune instances`) or a variant
    (`tritmark tune variants`), and a prefetch strategy (`tritmark tune prefetch`); "" if only built-in choices ran."""

    def __repr__(self) -> str:
        reported = ((each, getattr(self, each.name)) for each in fields(self))
        shown = ", ".join(f"{each.name}={value!r}" for each, value in reported if value != each.default)
        return f"{type(self).__name__}({shown})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Proof):
    """The part of a Run, or of one call, that proves which code ran."""

    kernel: str
    """Id of the variant: device/op/format/dtype/name."""
    ran: str
    """The implementation that ran, as reported by the code that ran."""
    runs: int
    """Number of runs, counted by the code that ran."""
    threads: int
    """Threads that took part in the last run."""
    native: bool = True
    """False if no kernel exists and a dequantized computation ran instead."""
    note: str = ""
    """Why something different from the request ran."""

    __repr__ = Proof.__repr__
