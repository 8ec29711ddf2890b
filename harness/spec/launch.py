"""Launch: a variant bound to its arguments; Receipt: what proves that it ran."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol


class Launch(Protocol):
    """A variant bound to its arguments, ready to run any number of times."""

    def run(self) -> None:
        """Run once and return when the outputs are complete."""

    @property
    def ran(self) -> str:
        """The implementation that ran, told by the code that ran ("" before the first run)."""

    @property
    def runs(self) -> int:
        """How often the code has run, counted by itself."""

    @property
    def threads_used(self) -> int:
        """Threads that took part in the last run."""

    @property
    def bad(self) -> int:
        """Index (in C order) of the first input element that the contract forbids, found on the way; -1 if none."""

    @property
    def pointer(self) -> int | None:
        """Address of the native call for the device's clock, or None where only Python can call it.

        On the host two pointers lie there, which stay as long as the launch: `int (*function)(void *)`, and the
        argument to call it with.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One launch of a function on a device."""

    function: str
    binary: str
    """SHA-256 of the binary that holds it."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    """Bytes of shared memory that each block asked for at the launch."""
    resident: int | None = None
    """Blocks of it that one multiprocessor holds at a time; None where the device does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a device's launcher collected about launches, as they happened."""

    uuid: str = ""
    """UUID of the device that ran it, where the device has one."""
    functions: tuple[str, ...] = ()
    """Names of the device functions that were launched for it."""
    launches: int = 0
    """How many launches the device was given for it."""
    device_ns: float = 0.0
    """Nanoseconds that the device itself measured for the runs that it timed; 0 where it timed none."""
    timed_runs: int = 0
    """How many of the runs `device_ns` covers."""
    code_hash: str = ""
    """SHA-256 of the compiled code, where the device gives it."""
    simulated: bool = False
    """True where a simulator stood in for the device."""
    launched: tuple[Launched, ...] = ()
    """The different launches on the device, in their order."""
    tuned: str = ""
    """The instance (`tritmark tune instances`) or the variant (`tritmark tune variants`) that ran because it was
    measured to be better here than the built-in choice, and how weights were fetched ahead for that reason (`tritmark
    tune prefetch`); "" where the built-in choice ran."""

    def __repr__(self) -> str:
        reported = ((each, getattr(self, each.name)) for each in fields(self))
        shown = ", ".join(f"{each.name}={value!r}" for each, value in reported if value != each.default)
        return f"{type(self).__name__}({shown})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Proof):
    """The part of a Run, or of one call, that proves what ran."""

    kernel: str
    """Id of the variant: device/op/format/dtype/name."""
    ran: str
    """The implementation that ran, read back from the code that ran."""
    runs: int
    """How often it ran, counted by itself."""
    threads: int
    """Threads that took part in the last run."""
    native: bool = True
    """False where no kernel exists and dequantized computation took its place."""
    note: str = ""
    """Why something other than what was asked for ran."""

    __repr__ = Proof.__repr__
