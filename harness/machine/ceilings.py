"""What a device can do at most, level by level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritmark.harness.machine import cpu
from tritmark.harness.spec import Device

if TYPE_CHECKING:
    from tritmark.harness.record import CeilingFacts

_COLD_BYTES = 4 << 20


def measure_ceilings(device: Device) -> list[CeilingFacts]:
    """Every ceiling of the device in each cache level and in memory, with one thread and with one for each core. Takes 1 to 3 s.

    In a cache level the probe goes over half of it again and again, each thread over its own part; in memory over 4 MiB that are cold. The
    last level is left out where the threads' own caches are so large that half of it would lie in them.
    """
    from tritmark.harness.measure.survey import BYTES, COMPUTE_BYTES, Field, survey
    from tritmark.harness.record import CeilingFacts

    found = survey(device)
    caches = cpu.caches() if device.type == "cpu" else {}
    field = Field()
    facts = []
    for name in found.names():
        unit = found.unit(name)
        for threads in dict.fromkeys((1, device.cores())):
            places = _places(caches, threads) if unit == BYTES else [("registers", COMPUTE_BYTES, False)]
            for level, nbytes, cold in places:
                roof = found.roof(name, field, nbytes, threads=threads, cold=cold)
                facts.append(
                    CeilingFacts(device=device.type, name=name, level=level, threads=threads, nbytes=nbytes, rate=roof.rate, unit=unit)
                )
    return facts


def _places(caches: dict[str, int], threads: int) -> list[tuple[str, int, bool]]:
    """(level, bytes, whether cold) for each level that there is."""
    private = {level: threads * size // 2 for level, size in (("L1", caches.get("L1d", 0)), ("L2", caches.get("L2", 0))) if size}
    shared = caches.get("L3", 0) // 2
    if shared > 2 * threads * caches.get("L2", 0):
        private["L3"] = shared
    return [*((level, nbytes, False) for level, nbytes in private.items()), ("memory", _COLD_BYTES, True)]
