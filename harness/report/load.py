"""Load of the machine during timing, in words."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tritmark.harness.measure.system_load import crowded
from tritmark.harness.record import MachineLoad, Record, Run
from tritmark.harness.text import units
from tritmark.harness.validate.ceiling import TELLING


def loads(record: Record) -> list[MachineLoad]:
    """The loads of all timed Runs that state one."""
    return [run.load for run in record.runs if run.load is not None]


def busy(record: Record) -> list[Run]:
    """The Runs during which other load left fewer cores than the kernel has threads."""
    return [
        run
        for run in record.runs
        if run.load is not None and crowded(run.load.others, run.threads, run.load.cores, TELLING)
    ]


def summary(record: Record) -> str:
    """One phrase for the whole Record; "" if the load is unknown."""
    found = loads(record)
    others = [each.others for each in found if each.others is not None]
    parts = []
    if others:
        stolen = max(each.stolen or 0.0 for each in found)
        cores = found[0].cores
        parts.append(
            f"other load took {_cores(median(others))} of {units.counted(cores, 'core')} in the median Run, "
            f"{_cores(max(others))} at most"
        )
        parts.append(f"steal {_cores(stolen)} at most")
    parts += _clocks(found) + _sensors(found)
    return ", ".join(parts)


def summary_of(run: Run) -> str:
    """One phrase for a Run; "" if the load is unknown."""
    found = run.load
    if found is None:
        return ""
    parts = []
    if found.others is not None:
        parts.append(f"other load took {_cores(found.others)} of {units.counted(found.cores, 'core')}")
    if found.stolen is not None:
        parts.append(f"steal {_cores(found.stolen)}")
    parts += _clocks([found]) + _sensors([found])
    return f"during timing: {', '.join(parts)}" if parts else ""


def crowd(record: Record) -> str:
    """A sentence if other load kept the cores busy, else ""."""
    runs = busy(record)
    if not runs:
        return ""
    worst = max((run.load for run in runs if run.load is not None), key=lambda load: load.others or 0.0)
    of = f"{len(runs):,} of {units.counted(len(loads(record)), 'timed Run')}"
    cores = units.counted(worst.cores, "core")
    return f"Other load kept the cores busy during {of}: up to {_cores(worst.others or 0.0)} of {cores}"


def _cores(share: float) -> str:
    return f"{share:.1f}" if share >= 0.05 else "0"


def _clocks(found: Sequence[MachineLoad]) -> list[str]:
    pairs = (
        ("clock", [(each.clock_low_hz, each.clock_high_hz) for each in found]),
        ("GPU clock", [(each.device_clock_low_hz, each.device_clock_high_hz) for each in found]),
    )
    reported = []
    for name, ends in pairs:
        hz = [end for pair in ends for end in pair if end is not None]
        if hz:
            low, high = units.rate(min(hz), "Hz"), units.rate(max(hz), "Hz")
            reported.append(f"{name} {low}" if low == high else f"{name} {low} to {high}")
    return reported


def _sensors(found: Sequence[MachineLoad]) -> list[str]:
    """Temperature, power and reasons of lower clocks over all readings."""
    each = [unit for load in found for unit in load.sensors]
    degrees = [
        value
        for unit in each
        for value in (
            unit.before.temperature,
            unit.during.temperature_low,
            unit.during.temperature_high,
            unit.after.temperature,
        )
        if value is not None
    ]
    parts = []
    if degrees:
        low, high = f"{min(degrees):.0f}", f"{max(degrees):.0f}"
        parts.append(f"{low} °C" if low == high else f"{low} to {high} °C")
    watts = [unit.during.power_high for unit in each if unit.during.power_high is not None]
    if watts:
        parts.append(f"at most {max(watts):.0f} W")
    reasons = sorted(
        {
            reason
            for unit in each
            for reason in (*(unit.before.throttle or ()), *unit.during.throttle, *(unit.after.throttle or ()))
        }
        | {reason for unit in each for reason, ns in unit.throttled_ns.items() if ns}
    )
    limited = [reason for reason in reasons if reason != "gpu_idle"]
    if limited:
        parts.append(f"clocks limited by {' and '.join(limited)}")
    return parts
