"""Devices other than the host, such as GPUs: facts and state, bandwidth, cost of a launch, copies, memory, receipts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tritmark.harness.machine.nvml import Health
from tritmark.harness.record import HOST, CeilingFacts, Gpu, Measurement, Record, Run
from tritmark.harness.report.section import Section
from tritmark.harness.spec import DeviceStats
from tritmark.harness.spec.stats import COUNTS
from tritmark.harness.text import groups, units

_MOST_ROWS = 60
_BYTES = "bytes/s"
_LAUNCHES = "launches/s"
_UNKNOWN = "unknown"


def facts(gpu: Gpu) -> list[tuple[str, str]]:
    """Facts of a GPU, and its state at the start of the invocation."""
    major, minor = gpu.capability
    health = gpu.health or Health()
    rows = [
        ("GPU", f"{gpu.index}: {gpu.name}"),
        ("UUID", gpu.uuid),
        ("Compute capability", f"{major}.{minor}"),
        ("Multiprocessors", str(gpu.sms)),
        ("Memory", units.size(gpu.memory)),
        ("L2", units.size(gpu.l2)),
        ("Highest clocks", f"{_clock(gpu.clock_hz)}, memory {_clock(gpu.memory_clock_hz)}"),
        ("Memory bus", f"{gpu.memory_bus_bits} bits: {units.rate(gpu.peak_bandwidth, _BYTES)} at that clock"),
        ("Driver", gpu.driver or _UNKNOWN),
        ("Temperature", _UNKNOWN if health.temperature is None else f"{health.temperature} °C"),
        ("Power", f"{_watt(health.power)} of {_watt(health.power_limit)}"),
        ("Clocks at the beginning", f"{_clock(health.clock_hz)}, memory {_clock(health.memory_clock_hz)}"),
        ("Clocks throttled by", _UNKNOWN if health.throttle is None else ", ".join(health.throttle) or "nothing"),
        ("ECC", _ecc(health)),
        (
            "Utilization, memory used",
            (
                f"{_UNKNOWN if health.utilization is None else f'{health.utilization} %'}, "
                f"{units.size(health.memory_used)}"
            ),
        ),
    ]
    if gpu.reaches:
        rows.append(("Direct access to the memory of", ", ".join(f"GPU {index}" for index in gpu.reaches)))
    if health.note:
        rows.append(("Health", health.note))
    if gpu.faked:
        rows.append(("FAKED", "an environment variable for tests declared it usable"))
    return rows


def _clock(hz: int | None) -> str:
    return units.rate(hz, "Hz") if hz else _UNKNOWN


def _watt(power: float | None) -> str:
    return _UNKNOWN if power is None else f"{power:.0f} W"


def _ecc(health: Health) -> str:
    if health.ecc is None:
        return _UNKNOWN
    errors = "" if health.ecc_uncorrected is None else f", {health.ecc_uncorrected} uncorrected errors"
    return f"{'on' if health.ecc else 'off'}{errors}"


def _fastest(record: Record, device: str, name: str) -> CeilingFacts | None:
    """The highest ceiling of that name in the memory of the device."""
    found = [
        each for each in record.machine.ceilings if (each.device, each.name, each.level) == (device, name, "memory")
    ]
    return max(found, key=lambda each: each.rate, default=None)


def _rate(nbytes: int, footing: Measurement) -> float:
    return nbytes * 1e9 / footing.timing.median_ns


def _bandwidth(record: Record, runs: list[Run]) -> list[dict[str, Any]]:
    rows = []
    for run in runs:
        cold = run.performance.cold
        if cold is None or cold.timing.median_ns <= 0:
            continue
        moved = run.performance.read + run.performance.written
        copy, read = (_fastest(record, run.device, name) for name in ("copy", "read"))
        rate = _rate(moved, cold)
        rows.append(
            {
                "run": run,
                "moved": moved,
                "rate": rate,
                "of_copy": rate / copy.rate if copy else None,
                "of_read": _rate(run.performance.read, cold) / read.rate if read else None,
                "footing": cold,
            }
        )
    return sorted(rows, key=lambda row: (row["run"].op, -row["moved"], -row["rate"]))


def _launches(runs: list[Run]) -> list[dict[str, Any]]:
    """The smallest workload of each kernel: the cost of a call with almost no work."""
    rows = []
    for same in groups.by_kernel(runs).values():
        timed = [run for run in same if run.performance.hot and run.performance.call_overhead_ns is not None]
        least = min(timed, key=lambda run: run.performance.read + run.performance.written, default=None)
        if least is not None and least.performance.hot is not None and least.performance.call_overhead_ns is not None:
            graph = least.performance.hot.timing
            rows.append(
                {
                    "run": least,
                    "graph": graph.median_ns,
                    "clock": graph.clock,
                    "adds": least.performance.call_overhead_ns,
                }
            )
    return sorted(rows, key=lambda row: row["graph"])


def _empty(record: Record, devices: set[str]) -> list[CeilingFacts]:
    """Launch rate of an empty kernel, for each way of launching."""
    return [
        each for each in record.machine.ceilings if each.device in devices and each.unit == _LAUNCHES and each.rate > 0
    ]


def _transfers(runs: Iterable[Run]) -> list[dict[str, Any]]:
    rows = []
    for name, reported in (("upload", "host to device"), ("download", "device to host")):
        found = [transfer for run in runs if (transfer := getattr(run, name)) is not None]
        if found:
            rows.append(
                {
                    "name": reported,
                    "count": len(found),
                    "nbytes": sum(each.nbytes for each in found),
                    "ns": sum(each.ns for each in found),
                    "largest": max(found, key=lambda each: each.nbytes),
                    "best": max(found, key=lambda each: each.rate or 0.0),
                }
            )
    return rows


def _memory(runs: list[Run]) -> list[Run]:
    """The largest workload of each kernel."""
    kept = [[run for run in same if run.device_memory] for same in groups.by_kernel(runs).values()]
    return [max(same, key=_arguments) for same in kept if same]


def _arguments(run: Run) -> int:
    return run.device_memory.inputs + run.device_memory.outputs if run.device_memory else 0


def _stats(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """For each device, the counts of all Runs and the largest figures of its memory pool."""
    each: dict[tuple[str, bool], list[DeviceStats]] = {}
    for run in runs:
        if run.device_stats is not None:
            each.setdefault((run.device_stats.device, run.device_stats.simulated), []).append(run.device_stats)
    return [
        {
            "device": device,
            "simulated": simulated,
            "runs": len(found),
            **{name: sum(getattr(one, name) for one in found) for name in COUNTS},
            **{name: max(getattr(one.pool, name) for one in found) for name in _POOL},
        }
        for (device, simulated), found in sorted(each.items())
    ]


_POOL = ("most_active", "most_held", "fragmentation", "refused")


def _receipts(runs: list[Run]) -> list[dict[str, Any]]:
    rows = []
    for kernel, same in groups.by_kernel(runs).items():
        receipts = [run.receipt for run in same if run.receipt is not None]
        if not receipts:
            continue
        timed = sum(receipt.timed_runs for receipt in receipts)
        rows.append(
            {
                "kernel": kernel,
                "functions": list(dict.fromkeys(name for receipt in receipts for name in receipt.functions)),
                "uuids": list(dict.fromkeys(receipt.uuid or units.NONE for receipt in receipts)),
                "hashes": list(dict.fromkeys(receipt.code_hash[:12] or units.NONE for receipt in receipts)),
                "runs": sum(receipt.runs for receipt in receipts),
                "launches": sum(receipt.launches for receipt in receipts),
                "ns": sum(receipt.device_ns for receipt in receipts) / timed if timed else None,
                "timed": timed,
                "simulated": any(receipt.simulated for receipt in receipts),
                "native": all(receipt.native for receipt in receipts),
                "notes": list(dict.fromkeys(receipt.note for receipt in receipts if receipt.note)),
            }
        )
    return rows


def _against_host(record: Record) -> list[dict[str, Any]]:
    """For each op, dtype and workload with both figures: the fastest kernel of the host and of each other device."""
    found: dict[tuple[str, str, str], dict[str, list[Run]]] = {}
    for run in groups.steady(groups.sound(record)):
        if run.performance.cold is not None:
            found.setdefault((run.op, run.dtype, run.workload.id), {}).setdefault(run.device, []).append(run)
    rows = []
    for devices in found.values():
        host = min(devices.pop(HOST, []), key=_cold_ns, default=None)
        for runs in devices.values():
            quickest = min(runs, key=_cold_ns)
            if host is not None and _cold_ns(quickest) > 0:
                rows.append({"host": host, "device": quickest, "ratio": _cold_ns(host) / _cold_ns(quickest)})
    return sorted(rows, key=lambda row: (row["device"].op, row["device"].performance.read))


def _cold_ns(run: Run) -> float:
    return run.performance.cold.timing.median_ns if run.performance.cold else float("inf")


def _context(record: Record) -> dict[str, Any] | None:
    runs = [run for run in record.runs if run.device != HOST and run.receipt is not None]
    if not runs:
        return None
    measured = [run for run in groups.sound(record) if run.device != HOST]
    bandwidth = _bandwidth(record, groups.fastest(groups.steady(measured)) if len(measured) > _MOST_ROWS else measured)
    ran = {run.receipt.uuid for run in runs if run.receipt is not None}
    devices = {run.device for run in runs}
    units = {lane.device: lane.units for lane in record.lanes if lane.device in devices and lane.units}
    gpus = [gpu for gpu in record.machine.gpus if gpu.uuid in ran] or (
        list(record.machine.gpus) if devices - units.keys() else []
    )
    links = [each for each in record.machine.ceilings if each.device in devices and each.name in {"upload", "download"}]
    return {
        "gpus": [facts(gpu) for gpu in gpus],
        "units": units,
        "simulated": groups.simulated(record),
        "bandwidth": bandwidth[:_MOST_ROWS],
        "more": max(0, len(bandwidth) - _MOST_ROWS),
        "roofs": [
            roof
            for device in sorted(devices)
            for name in ("copy", "read", "write")
            if (roof := _fastest(record, device, name))
        ],
        "launches": _launches(measured),
        "empty": _empty(record, devices),
        "transfers": _transfers(runs),
        "links": links,
        "memory": _memory(runs),
        "stats": _stats(runs),
        "receipts": _receipts(runs),
        "ratios": _against_host(record),
    }


SECTION = Section("gpu", "Devices", "gpu.html", _context, about="bandwidth, launches, copies, memory and receipts")
