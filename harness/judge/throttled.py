"""Whether a GPU or CPU was throttled while a Run was timed, and what that does to the verdict."""

from __future__ import annotations

from tritmark.harness.record import MachineLoad, Performance, Status, UnitSensors
from tritmark.harness.record.model import TOO_NOISY
from tritmark.harness.text import units
from tritmark.harness.validate.ceiling import TELLING
from tritmark.harness.validate.confirm import statistical

SLOWING = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
"""Reasons of NVML for which a GPU is slower than it should be: heat, or lack of power."""

OF_THE_CPU = ("core_thermal_throttle", "package_thermal_throttle")
"""The same of a CPU, as Linux counts it."""
NEXT = "check cooling and power with `tritmark health`, let it cool down, and measure again"


def throttling(load: MachineLoad) -> list[str]:
    """What lowered the clocks during the timing so that its figures do not hold; empty for none.

    A power cap is the normal state of a GPU under full load. It counts only if the clock then fell so far that two
    times of the same kernel could not be compared (TOO_NOISY).
    """
    return [text for each in load.sensors for text in _of(each, load.seconds)]


def doubted(performance: Performance, load: MachineLoad) -> Performance:
    """The performance, AMBIGUOUS if throttling explains it: a PASS, or a FAIL that rests on time alone."""
    found = throttling(load)
    if not found:
        return performance
    explained = performance.status is Status.PASS or (performance.status is Status.FAIL and statistical(performance))
    text = f"throttled during timing: {', '.join(found)}; next: {NEXT}"
    update: dict[str, object] = {"reason": "; ".join(filter(None, (text, performance.reason)))}
    if explained:
        update["status"] = Status.AMBIGUOUS
    return performance.model_copy(update=update)


def _of(unit: UnitSensors, seconds: float) -> list[str]:
    found = []
    for reason in SLOWING:
        # An idle GPU may report reasons that no kernel met.
        seen = [
            when
            for when, reading in (("before", unit.before), ("after", unit.after))
            if reason in (reading.throttle or ()) and "gpu_idle" not in (reading.throttle or ())
        ]
        count = unit.during.throttle.get(reason, 0)
        seen += [f"in {count} of {units.counted(unit.during.readings, 'reading')}"] if count else []
        # A share below the difference that a measurement must resolve does not change a median.
        ns = unit.throttled_ns.get(reason, 0)
        seen += [_share(ns, seconds)] if ns > TELLING * seconds * 1e9 else []
        if seen:
            found.append(f"{reason} {', '.join(seen)}")
    found += [
        f"{reason} {_share(ns, seconds)}"
        for reason, ns in unit.throttled_ns.items()
        if reason in OF_THE_CPU and ns > TELLING * seconds * 1e9
    ]
    fastest = unit.during.clock_high_hz
    if unit.capped_clock_hz and fastest and unit.capped_clock_hz < (1 - TOO_NOISY) * fastest:
        low, high = (units.rate(hz, "Hz") for hz in (unit.capped_clock_hz, fastest))
        found.append(f"sw_power_cap, which lowered the clock from {high} to {low}")
    return found


def _share(ns: int, seconds: float) -> str:
    return f"for {ns / 1e9:.2g} of {seconds:.2g} s"
