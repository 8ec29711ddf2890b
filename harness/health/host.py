"""Checks of the host, most of them those of `tritmark doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tritmark.harness.doctor import host
from tritmark.harness.doctor.check import Check, State
from tritmark.harness.health.finding import MACHINE, HealthFinding, Severity
from tritmark.harness.machine import cpu_sensors
from tritmark.harness.spec import Device
from tritmark.harness.text import units

_NOISE = {State.OK: Severity.OK, State.ABSENT: Severity.ABSENT, State.BETTER: Severity.OK, State.MEND: Severity.WARNING}
"""Noise makes figures worse and no result incorrect. What could only be better is the doctor's matter."""
_DISK = {
    State.OK: Severity.OK,
    State.ABSENT: Severity.ABSENT,
    State.BETTER: Severity.WARNING,
    State.MEND: Severity.CRITICAL,
}


def _of(check: Check, severities: Mapping[State, Severity]) -> HealthFinding:
    severity = severities[check.state]
    return HealthFinding(
        unit=MACHINE,
        name=check.name,
        severity=severity,
        found=check.found,
        legal=check.means,
        next_step=check.mend if severity not in {Severity.OK, Severity.ABSENT} else "",
    )


def disk(out: Path) -> HealthFinding:
    """Whether results can be written."""
    return _of(host.disk(out), _DISK)


def quiet(device: Device) -> Iterator[HealthFinding]:
    """The noise of the host and the load by other processes. Takes about 1.5 seconds."""
    from tritmark.harness.doctor import noise  # a passive probe is twice as fast without this import

    yield from (_of(each, _NOISE) for each in noise.noise(device))


def throttling(before: Mapping[str, int] | None) -> HealthFinding:
    """Whether heat lowered the clocks of the CPU since the last probe, when the counters were `before`."""
    now, sensors = cpu_sensors.throttled_ns(), cpu_sensors.sensors()
    facts = [f"{sensors.temperature:.0f} °C"] if sensors.temperature is not None else []
    if sensors.clock_low_hz and sensors.clock_high_hz:
        facts.append(f"{sensors.clock_low_hz // 1_000_000} to {sensors.clock_high_hz // 1_000_000} MHz")
    legal = "heat does not lower the clocks"
    if not now:
        found = ", ".join([*facts, "this CPU does not report throttling"])
        return HealthFinding(unit=MACHINE, name="CPU", severity=Severity.ABSENT, found=found, legal=legal)
    grown = {name: ns - before[name] for name, ns in now.items() if before and name in before and ns > before[name]}
    if grown:
        text = ", ".join(f"{name} for {units.time(ns)}" for name, ns in grown.items())
        return HealthFinding(
            unit=MACHINE,
            name="CPU",
            severity=Severity.WARNING,
            found=", ".join([*facts, f"since the last probe: {text}"]),
            legal=legal,
            next_step="check its cooling",
        )
    return HealthFinding(
        unit=MACHINE, name="CPU", severity=Severity.OK, found=", ".join(facts) or "no throttling", legal=legal
    )
