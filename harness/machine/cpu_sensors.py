"""Sensors of the CPU: clocks, temperature, and thermal throttling as Linux counts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritmark.harness.machine.cpu import CPUS, affinity, clocks
from tritmark.harness.machine.files import SYS, number
from tritmark.harness.machine.reading import Reading

_CHIPS = frozenset({"coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal"})
"""Drivers of CPU temperatures, as hwmon names them."""


def sensors() -> Reading:
    """Current readings of the cores that this process may use."""
    each = clocks()
    return Reading(
        clock_low_hz=min(each, default=None), clock_high_hz=max(each, default=None), temperature=_temperature()
    )


def throttled_ns(sys: Path = SYS) -> dict[str, int]:
    """Nanoseconds since boot for which heat lowered the clock: of the core that was slowed most, and of its package.

    Only x86 CPUs by Intel count it; empty elsewhere, and in virtual machines."""
    found = {}
    for scope in ("core", "package"):
        path = "thermal_throttle", f"{scope}_throttle_total_time_ms"
        each = [number((sys / CPUS / f"cpu{core}").joinpath(*path)) for core in affinity()]
        known = [ms for ms in each if ms is not None]
        if known:
            found[f"{scope}_thermal_throttle"] = max(known) * 1_000_000
    return found


def _temperature() -> float | None:
    import psutil

    found: dict[str, Any] = getattr(psutil, "sensors_temperatures", dict)()  # Linux and FreeBSD only
    return max((float(each.current) for chip in _CHIPS for each in found.get(chip, ())), default=None)
