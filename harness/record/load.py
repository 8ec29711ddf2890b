"""What else a machine did while a Run was timed."""

from __future__ import annotations

from tritmark.harness.record.model import Model


class MachineLoad(Model):
    """What others took from the machine while a Run was timed, and its clocks at the begin and the end of that. None
    where the machine does not show it."""

    seconds: float
    """How long timing took."""
    cores: int
    """Logical cores that the kernel may run on."""
    others: float | None = None
    """Cores' worth of time that other processes and the hypervisor took from these cores."""
    stolen: float | None = None
    """The part of `others` that the hypervisor gave to other guests (steal time)."""
    clock_low_hz: int | None = None
    """The slowest clock of these cores."""
    clock_high_hz: int | None = None
    """The fastest one."""
    device_clock_low_hz: int | None = None
    """The same of the multiprocessors of the GPU that the kernel ran on."""
    device_clock_high_hz: int | None = None
