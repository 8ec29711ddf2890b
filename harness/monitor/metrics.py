"""What monitors export: the same names for Prometheus and OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tritmark.harness.monitor.data import SessionData
from tritmark.harness.monitor.machine_samples import Sample


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric and its values by their labels. `total`: it only grows."""

    name: str
    summary: str
    unit: str
    """As in UCUM: "s", "By", "Hz", "W", "1"."""
    total: bool
    values: tuple[tuple[dict[str, str], float], ...]


_QUANTILES = (0.5, 0.9, 0.99)
_DEVICES = (
    ("copies", "Copies to devices and back.", "1", True, ("uploads", "downloads")),
    ("copied", "What was copied to devices and back.", "By", True, ("bytes_uploaded", "bytes_downloaded")),
    ("allocations", "Allocations from memory pools, and new ones.", "1", True, ("pool_hits", "pool_misses")),
    ("pool", "Memory of the pools.", "By", False, ("pool_active", "pool_held", "pool_most_held")),
)


def metrics(found: SessionData, latest: Sample | None) -> Iterator[Metric]:
    """The metrics of a session and of the machine at the last sample."""
    from tritmark.harness.monitor.histogram import quantile

    calls, errors, busy, moved, times = [], [], [], [], []
    for each in found.series:
        key = each.key
        # Calls that do not wait for the device have only the time of their submission.
        time = "none" if key.simulated else "submission" if key.asynchronous else "call"
        labels = {"entry": key.entry, "kernel": key.kernel, "shape": key.shape, "threads": str(key.threads)}
        labels["time"] = time
        if each.calls:
            calls.append((labels, float(each.calls)))
        errors += [({**labels, "error": kind}, float(count)) for kind, count in each.errors.items()]
        if each.busy_ns is not None:
            busy.append((labels, each.busy_ns / 1e9))
            for share in _QUANTILES:
                value = quantile(each.histogram, share)
                if value is not None:
                    times.append(({**labels, "quantile": str(share)}, value / 1e9))
        if each.nbytes is not None:
            moved.append((labels, float(each.nbytes)))
    yield Metric("tritmark_calls", "Calls that returned.", "1", True, tuple(calls))
    yield Metric("tritmark_call_errors", "Calls that raised.", "1", True, tuple(errors))
    yield Metric("tritmark_call_time", "Time of all calls, from the timed ones.", "s", True, tuple(busy))
    yield Metric("tritmark_call_traffic", "Least traffic of all calls.", "By", True, tuple(moved))
    yield Metric("tritmark_call_duration", "Quantiles of the time of a call.", "s", False, tuple(times))
    for name, summary, unit, total, counted in _DEVICES:
        devices = tuple(
            ({"device": device, "of": of}, float(counts[of]))
            for device, counts in found.devices.items()
            for of in counted
            if of in counts
        )
        yield Metric(f"tritmark_device_{name}", summary, unit, total, devices)
    if latest is not None:
        yield from _machine(latest)


def _machine(sample: Sample) -> Iterator[Metric]:
    def plain(name: str, summary: str, unit: str, value: float | None) -> Metric:
        return Metric(f"tritmark_{name}", summary, unit, False, () if value is None else (({}, float(value)),))

    yield plain("own_cores", "Cores that this process keeps busy.", "1", sample.own_cores)
    yield plain("other_cores", "Cores that other processes take.", "1", sample.other_cores)
    yield plain("processor_clock", "Mean clock of the cores.", "Hz", sample.clock_hz)
    yield plain("resident_memory", "Memory of this process.", "By", sample.rss)
    for name, summary, unit, field, scale in (
        ("gpu_utilization", "Share of time in which a kernel runs, 0 to 1.", "1", "utilization", 0.01),
        ("gpu_clock", "Clock of the GPU.", "Hz", "clock_hz", 1.0),
        ("gpu_power", "Power of the GPU.", "W", "power", 1.0),
        ("gpu_temperature", "Temperature of the GPU.", "Cel", "temperature", 1.0),
        ("gpu_memory_used", "Memory of the GPU in use.", "By", "memory_used", 1.0),
    ):
        values: list[tuple[dict[str, str], float]] = []
        for uuid, gpu in sample.gpus.items():
            value: Any = getattr(gpu, field)
            if value is not None:
                values.append(({"gpu": uuid}, value * scale))
        yield Metric(f"tritmark_{name}", summary, unit, False, tuple(values))
