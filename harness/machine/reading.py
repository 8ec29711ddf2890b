"""Readings of sensors at one moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Sensors of a GPU, or of the cores that this process may use. None: not reported."""

    clock_low_hz: int | None = None
    """Clock rate of the slowest core; of a GPU, that of the multiprocessors."""
    clock_high_hz: int | None = None
    """Clock rate of the fastest core."""
    memory_clock_hz: int | None = None
    """Of a GPU."""
    temperature: float | None = None
    """Degrees Celsius; of a CPU, its hottest sensor."""
    power: float | None = None
    """Watts drawn by a GPU."""
    throttle: tuple[str, ...] | None = None
    """Reasons for lower clocks, as NVML names them; () for none."""
    note: str = ""
    """Why a GPU reports nothing."""
