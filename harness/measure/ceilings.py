"""Measures the ceilings of a device at each cache level and in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tritmark.harness.machine import cpu
from tritmark.harness.measure.buffers import empty
from tritmark.harness.spec import Ceiling, Device

if TYPE_CHECKING:
    from tritmark.harness.record import CeilingFacts

_COLD_BYTES = 4 << 20
_DEVICE_COLD_BYTES = 1 << 30
_TRANSFER_BYTES = 128 << 20
_SHARE = 8
_TIMES = 8
"""The probe of the last-level cache covers at most this many times the threads' own caches, so at most 1/8 of it lies
in them. More fails on virtual machines, which report the host's whole cache although other guests use it: half of 300
MiB was read at half of memory's rate and contradicted the ceiling of memory."""

_PROBE_BYTES, _PROBES = 1 << 20, 16
"""Bytes per thread, enough that waking all threads pays, and the number of attempts."""


def measure_ceilings(device: Device) -> list[CeilingFacts]:
    """Every ceiling of the device at each cache level and in memory, with one thread and with one per core. Takes 1 to
    3 s. Returns [] for a simulated device and for a device without a clock.

    In a cache level, the probe repeats over half of it, each thread over its own part; in the last level, over at most
    _TIMES the threads' own caches. In memory, it covers 4 MiB that are cold; on a device with its own memory 1 GiB, so
    that the launch does not count. The last level is left out if half of it fits into the threads' own caches. Ceilings
    that contradict each other are measured again once, for longer.
    """
    from tritmark.harness.measure.survey import Field, compute_bytes, survey
    from tritmark.harness.record import HOST, CeilingFacts, contradicted

    if device.simulated() or device.clock is None:
        return []
    found = survey(device)
    if device.memory is not None:
        cold = min(_DEVICE_COLD_BYTES, found.memory.available() // _SHARE)
        caches = {"L2": found.memory.cache or 0}
    else:
        cold = _COLD_BYTES
        caches = cpu.caches() if device.type == HOST else {}
    least = cold if device.memory is not None else compute_bytes(device, device.cores())
    field = Field(least, memory=found.memory)
    facts: dict[CeilingFacts, bool] = {}
    for name in found.names():
        probe = found.probes(name)[0]
        for threads in dict.fromkeys((1, device.cores())):
            for level, nbytes, is_cold in _places(probe, caches, threads, cold, compute_bytes(device, threads)):
                roof = found.roof(name, field, nbytes, threads=threads, cold=is_cold)
                fact = CeilingFacts(
                    device=device.type,
                    name=name,
                    level=level,
                    threads=threads,
                    nbytes=nbytes,
                    rate=roof.rate,
                    unit=probe.unit,
                )
                facts[fact] = is_cold
    repeated = contradicted(facts)

    def again(fact: CeilingFacts) -> CeilingFacts:
        roof = found.again(fact.name, field, fact.nbytes, threads=fact.threads, cold=facts[fact])
        return fact.model_copy(update={"rate": roof.rate, "repeats": fact.repeats + 1})

    return [again(fact) if fact in repeated else fact for fact in facts]


def _places(
    probe: Ceiling, caches: dict[str, int], threads: int, cold: int, compute: int
) -> list[tuple[str, int, bool]]:
    """(level, bytes, whether cold) for each existing level."""
    from tritmark.harness.measure.survey import BYTES

    if probe.level:
        return [(probe.level, min(cold, _TRANSFER_BYTES) if probe.unit == BYTES else compute, False)]
    if probe.unit != BYTES:
        return [("registers", compute, False)]
    private = {
        level: threads * size // 2
        for level, size in (("L1", caches.get("L1d", 0)), ("L2", caches.get("L2", 0)))
        if size
    }
    shared, own = caches.get("L3", 0) // 2, threads * caches.get("L2", 0)
    if shared > 2 * own:
        private["L3"] = min(shared, _TIMES * own) if own else shared
    return [*((level, nbytes, False) for level, nbytes in private.items()), ("memory", cold, True)]


def start_threads(device: Device, threads: int) -> None:
    """Start the threads of the device's probes, `threads` including the caller, so that their memory is allocated
    beforehand. Does nothing on a device without a read probe."""
    probe = device.ceilings().get("read")
    if probe is None:
        return
    launch = probe.bind(empty((_PROBE_BYTES * threads,), np.uint8), threads)
    for _ in range(_PROBES):
        launch.run()
        if launch.threads_used >= threads:
            return
