"""What a device can do at most, level by level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritmark.harness.machine import cpu
from tritmark.harness.spec import Ceiling, Device

if TYPE_CHECKING:
    from tritmark.harness.record import CeilingFacts

_COLD_BYTES = 4 << 20
_DEVICE_COLD_BYTES = 1 << 30
_TRANSFER_BYTES = 128 << 20
_SHARE = 8


def measure_ceilings(device: Device) -> list[CeilingFacts]:
    """Every ceiling of the device in each cache level and in memory, with one thread and with one for each core. Takes
    1 to 3 s.

    In a cache level the probe goes over half of it again and again, each thread over its own part; in memory over 4 MiB
    that are cold, or on a device with a memory of its own over 1 GiB, where starting and ending no longer count. The
    last level is left out where the threads' own caches are so large that half of it would lie in them. A simulated
    device has no speed, and one without a clock none that could be measured: they have no ceiling.
    """
    from tritmark.harness.measure.survey import Field, compute_bytes, survey
    from tritmark.harness.record import HOST, CeilingFacts

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
    facts = []
    for name in found.names():
        probe = found.probes(name)[0]
        for threads in dict.fromkeys((1, device.cores())):
            for level, nbytes, is_cold in _places(probe, caches, threads, cold, compute_bytes(device, threads)):
                roof = found.roof(name, field, nbytes, threads=threads, cold=is_cold)
                at = {"device": device.type, "name": name, "level": level, "unit": probe.unit}
                facts.append(CeilingFacts(**at, threads=threads, nbytes=nbytes, rate=roof.rate))
    return facts


def _places(
    probe: Ceiling, caches: dict[str, int], threads: int, cold: int, compute: int
) -> list[tuple[str, int, bool]]:
    """(level, bytes, whether cold) for each level that there is."""
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
    shared = caches.get("L3", 0) // 2
    if shared > 2 * threads * caches.get("L2", 0):
        private["L3"] = shared
    return [*((level, nbytes, False) for level, nbytes in private.items()), ("memory", cold, True)]
