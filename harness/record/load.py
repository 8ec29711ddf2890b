"""Load of the machine while a Run was timed."""

from __future__ import annotations

from tritmark.harness.record.model import Model


class MachineLoad(Model):
    """Load by other processes while a Run was timed, and the clock rates at its start and end. None if the machine does
    not report the value."""

    seconds: float
    """Duration of the timing."""
    cores: int
    """Logical cores that the kernel may run on."""
    others: float | None = None
    """Time that other processes and the hypervisor took from these cores, in cores."""
    stolen: float | None = None
    """The part of `others` that the hypervisor gave to other guests (steal time)."""
    clock_low_hz: int | None = None
    """Lowest clock rate of these cores."""
    clock_high_hz: int | None = None
    """Highest clock rate of these cores."""
    device_clock_low_hz: int | None = None
    """Lowest clock rate of the multiprocessors of the GPU on which the kernel ran."""
    device_clock_high_hz: int | None = None
    """Highest clock rate of these multiprocessors."""
