"""Load, clocks and temperatures of the machine while a Run was timed."""

from __future__ import annotations

from pydantic import Field

from tritmark.harness.machine.reading import Reading
from tritmark.harness.record.model import Model


class SensorRange(Model):
    """Readings at intervals during the timing. None: not reported."""

    readings: int = 0
    clock_low_hz: int | None = None
    clock_high_hz: int | None = None
    temperature_low: float | None = None
    """Degrees Celsius."""
    temperature_high: float | None = None
    power_high: float | None = None
    """Watts."""
    throttle: dict[str, int] = Field(default_factory=dict)
    """For each reason of lower clocks, the number of readings with it."""


class UnitSensors(Model):
    """The GPU, or the cores, that ran a kernel: before, during and after its timing."""

    unit: str
    """The UUID of a GPU; "cpu" for the cores that the process may use."""
    before: Reading
    during: SensorRange
    after: Reading
    throttled_ns: dict[str, int] = Field(default_factory=dict)
    """For each reason of lower clocks that the driver or Linux counts, nanoseconds during the timing. Empty if nothing
    is counted."""
    capped_clock_hz: int | None = None
    """Lowest clock rate of a reading under `sw_power_cap` while kernels ran; None without such a reading."""


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
    sensors: tuple[UnitSensors, ...] = ()
    """One for each GPU that ran the kernel, or one for the cores; empty before version 10."""
