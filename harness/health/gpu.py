"""Checks of a GPU, from what NVML reports now and what it reported at the last probe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf

from tritmark.harness.health.finding import HealthFinding, Severity
from tritmark.harness.health.history import AT_S
from tritmark.harness.machine.nvml_state import GpuState
from tritmark.harness.text import units

Counters = Mapping[str, int]

_HEAT = ("sw_thermal_slowdown", "hw_thermal_slowdown")
_SLOWING = ("hw_slowdown", *_HEAT, "hw_power_brake_slowdown")
_REPLACE = "back up results, and have the GPU replaced if errors return after a reboot"
_RESET = "drain the GPU and reset it with sudo nvidia-smi -r -i {0}, or reboot"


def name_of(state: GpuState) -> str:
    """The unit of the GPU's findings."""
    return f"GPU {state.index}"


def checks(state: GpuState, before: Counters | None, now: int = 0) -> Iterator[HealthFinding]:
    """Every check of one GPU. `before`: its counters at the last probe, None if there was none. `now`: seconds since
    1970."""
    unit = name_of(state)
    if state.note:
        severity = Severity.CRITICAL if state.lost else Severity.UNKNOWN
        step = _RESET.format(state.index) if state.lost else "run nvidia-smi for details, and check permissions"
        yield HealthFinding(
            unit=unit,
            name="driver",
            severity=severity,
            found="; ".join(filter(None, (state.lost, state.note))),
            legal="NVML reads the GPU",
            next_step=step,
        )
        return
    for check in _CHECKS:
        name, severity, found, legal, step = check(state, _growth(state, before, now))
        yield HealthFinding(
            unit=unit,
            name=name,
            severity=severity,
            found=found,
            legal=legal,
            next_step=step.format(state.index) if severity not in {Severity.OK, Severity.ABSENT} else "",
        )


def _growth(state: GpuState, before: Counters | None, now: int = 0) -> dict[str, int] | None:
    """Growth of each counter since the last probe; None if there was none. A counter that fell began anew with the
    driver."""
    if before is None:
        return None
    grown = {
        name: value - before[name] if value >= before[name] else value
        for name, value in state.counters.items()
        if name in before
    }
    # As in SensorWatch: what grew faster than time is another counter of this driver. A clock that was set back tells
    # nothing.
    seconds = now - before.get(AT_S, now)
    longest = 2e9 * (seconds + 1) if seconds > 0 else inf
    return {name: value for name, value in grown.items() if not (name.startswith("throttled_ns.") and value > longest)}


Row = tuple[str, Severity, str, str, str]
"""Name, severity, what was found, what is in order, next step."""


def _driver(state: GpuState, grown: Counters | None) -> Row:
    legal = "the driver asks for no recovery"
    if state.recovery:
        return "driver", Severity.CRITICAL, f"{state.name}: the driver asks to {state.recovery}", legal, _RESET
    facts = [state.name]
    if state.memory_used is not None:
        facts.append(f"{units.size(state.memory_used)} of {units.size(state.memory_total)} in use")
    if state.utilization is not None:
        facts.append(f"busy for {state.utilization} % of the time")
    return "driver", Severity.OK, ", ".join(facts), legal, ""


def _memory_errors(state: GpuState, grown: Counters | None) -> Row:
    name, legal = "memory errors", "no uncorrected errors, no new corrected ones"
    if state.ecc is None and state.uncorrected is None:
        return name, Severity.ABSENT, "this GPU does not report ECC", legal, ""
    if state.ecc is False:
        return name, Severity.ABSENT, "ECC is off: errors are not detected", legal, ""
    if state.uncorrected is None and state.uncorrected_total is None:
        step = "run sudo nvidia-smi -i {0} -q -d ECC"
        return name, Severity.UNKNOWN, "ECC is on, and its errors cannot be read", legal, step
    grown = grown or {}
    found = (
        f"uncorrected {_count(state.uncorrected)}, corrected {_count(state.corrected)} since the driver was loaded; "
        f"over its life {_count(state.uncorrected_total)} and {_count(state.corrected_total)}"
    )
    new = max(grown.get("uncorrected", 0), grown.get("uncorrected_total", 0))
    if new:
        return name, Severity.CRITICAL, f"{new} new uncorrected errors since the last probe; {found}", legal, _REPLACE
    if state.uncorrected:
        return name, Severity.CRITICAL, found, legal, _REPLACE
    new = max(grown.get("corrected", 0), grown.get("corrected_total", 0))
    if new:
        step = "watch whether it grows: nvidia-smi -i {0} -q -d ECC"
        return name, Severity.WARNING, f"{new} new corrected errors since the last probe; {found}", legal, step
    return name, Severity.OK, found, legal, ""


def _rows(state: GpuState, grown: Counters | None) -> Row:
    name, legal = "memory rows", "no failed and no pending replacement"
    if state.remap_failed is None and state.retired_pages is None:
        return name, Severity.ABSENT, "this GPU reports no replaced rows or pages", legal, ""
    parts = []
    if state.remap_failed is not None:
        parts.append(f"remapped rows: {state.remapped_uncorrected} uncorrected, {state.remapped_corrected} corrected")
    if state.retired_pages is not None:
        parts.append(f"retired pages: {state.retired_pages}")
    found = "; ".join(parts)
    if state.remap_failed:
        return name, Severity.CRITICAL, f"a row could not be replaced; {found}", legal, "have the GPU replaced"
    if state.remap_pending or state.retirement_pending:
        return name, Severity.WARNING, f"a replacement waits for a reset; {found}", legal, _RESET
    grown = grown or {}
    new = sum(grown.get(each, 0) for each in ("remapped_corrected", "remapped_uncorrected", "retired_pages"))
    if new:
        step = "watch whether it grows: nvidia-smi -i {0} -q -d ROW_REMAPPER,PAGE_RETIREMENT"
        return name, Severity.WARNING, f"{new} replaced since the last probe; {found}", legal, step
    return name, Severity.OK, found, legal, ""


def _temperature(state: GpuState, grown: Counters | None) -> Row:
    name, legal, step = "temperature", "below the temperature at which clocks are lowered", "check its cooling"
    now = state.reading.temperature
    if now is None and state.margin is None:
        return name, Severity.UNKNOWN, "not reported", legal, "run nvidia-smi -i {0} -q -d TEMPERATURE"
    limits = [
        (Severity.CRITICAL, "the GPU shuts down", state.shutdown_temperature, state.shutdown_margin),
        (Severity.CRITICAL, "the hardware lowers the clocks", state.slowdown_temperature, state.slowdown_margin),
        (Severity.WARNING, "the driver lowers the clocks", state.most_temperature, state.most_margin),
    ]
    found = "unknown" if now is None else f"{now:.0f} °C"
    if state.margin is not None:
        found += f", {state.margin} °C below its limit"
    known = [f"{degrees} °C: {what}" for _, what, degrees, _ in reversed(limits) if degrees is not None]
    legal = "; ".join(known) or legal
    for severity, what, degrees, margin in limits:
        above = now is not None and degrees is not None and now >= degrees
        if above or (state.margin is not None and margin is not None and state.margin <= margin):
            return name, severity, f"{found}: {what}", legal, step
    return name, Severity.OK, found, legal, ""


def _throttling(state: GpuState, grown: Counters | None) -> Row:
    name, legal = "throttling", "clocks lowered neither by heat nor by lack of power"
    reasons = state.reading.throttle
    if reasons is None:
        return name, Severity.UNKNOWN, "not reported", legal, "run nvidia-smi -i {0} -q -d PERFORMANCE"
    clock, most = state.reading.clock_high_hz, state.clock_max_hz
    found = f"{clock // 1_000_000} of {most // 1_000_000} MHz" if clock and most else "clocks unknown"
    named = [reason for reason in reasons if reason != "gpu_idle"]
    if named:
        found += f", limited by {', '.join(named)}"
    slowed = [reason for reason in reasons if reason in _SLOWING]
    step = "check its cooling" if slowed and set(slowed) <= set(_HEAT) else "check its cooling and its power supply"
    if slowed:
        return name, Severity.WARNING, found, legal, step
    past = {
        reason: ns
        for reason in _SLOWING
        if (ns := (grown or {}).get(f"throttled_ns.{reason}", 0)) >= 1_000_000  # shorter ones are below the display
    }
    if past:
        text = ", ".join(f"{reason} for {units.time(ns)}" for reason, ns in past.items())
        return name, Severity.WARNING, f"{found}; since the last probe: {text}", legal, step
    return name, Severity.OK, found, legal, ""


def _power(state: GpuState, grown: Counters | None) -> Row:
    name = "power"
    if state.reading.power is None:
        return name, Severity.ABSENT, "this GPU does not report its power", "", ""
    limit = "" if state.power_limit is None else f" of {state.power_limit:.0f}"
    return name, Severity.OK, f"{state.reading.power:.0f}{limit} W", "", ""


def _link(state: GpuState, grown: Counters | None) -> Row:
    name, legal = "PCIe link", "all lanes that GPU and machine have; the rate falls while the GPU idles"
    width, most = state.link_width, state.link_width_max
    if width is None or most is None:
        return name, Severity.ABSENT, "not reported", legal, ""
    found = f"{width} of {most} lanes"
    rate, fastest = state.link_generation, state.link_generation_max
    if rate is not None and fastest is not None:
        found += f", generation {rate} of {fastest}"
    if state.replays is not None:
        found += f", {state.replays} packets sent again"
    step = "reseat the GPU or its riser, and check the firmware's settings of the slot"
    if width < most:
        return name, Severity.WARNING, found, legal, step
    busy = bool(state.utilization) and "gpu_idle" not in (state.reading.throttle or ())
    if busy and rate is not None and fastest is not None and rate < fastest:
        return name, Severity.WARNING, f"{found}, while the GPU is busy", legal, step
    return name, Severity.OK, found, legal, ""


_CHECKS: tuple[Callable[[GpuState, Counters | None], Row], ...] = (
    _driver,
    _memory_errors,
    _rows,
    _temperature,
    _throttling,
    _power,
    _link,
)


def _count(value: int | None) -> str:
    return "unknown" if value is None else str(value)
