"""Samples of the machine while a session runs: load, clocks, throttling, memory, GPUs. One thread takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from tritmark.harness.machine.files import SYS, number

MOST = 720
"""Samples of a session. When there are more, every second one is dropped, and so on for later ones."""


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU; None if NVML does not report the value."""

    utilization: int | None
    """Percent of NVML's sample period in which a kernel of any process ran."""
    clock_hz: int | None
    power: float | None
    """Watts."""
    temperature: int | None
    memory_used: int | None
    """Bytes of all processes."""
    throttle: tuple[str, ...]
    """Reasons for lower clocks, without idleness."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The machine between the previous sample and this one."""

    at_s: float
    """Since the start of the session."""
    own_cores: float
    """Mean number of cores that this process kept busy."""
    other_cores: float | None
    """Cores that other processes and the hypervisor took, of those that this process may use."""
    clock_hz: float | None
    """Mean of the cores that this process may use; virtual machines often report a constant."""
    throttled: int | None
    """Times that the processor lowered its clock for its temperature; None if Linux does not count them."""
    rss: int
    """Bytes of memory of this process."""
    calls: int
    """Calls in this interval."""
    gpus: dict[str, GpuSample] = field(default_factory=dict)
    """By UUID."""
    devices: dict[str, dict[str, int]] = field(default_factory=dict)
    """What devices with their own memory count, see Device.stats: totals of the process."""

    def as_json(self) -> dict[str, Any]:
        """The fields with a value."""
        return {name: value for name, value in asdict(self).items() if value not in (None, {})}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Sample:
        """The reverse of as_json; unknown fields are ignored. Raises KeyError for a missing field."""
        gpus = {
            uuid: GpuSample(
                each.get("utilization"),
                each.get("clock_hz"),
                each.get("power"),
                each.get("temperature"),
                each.get("memory_used"),
                tuple(each.get("throttle", ())),
            )
            for uuid, each in given.get("gpus", {}).items()
        }
        return cls(
            given["at_s"],
            given["own_cores"],
            given.get("other_cores"),
            given.get("clock_hz"),
            given.get("throttled"),
            given["rss"],
            given["calls"],
            gpus,
            given.get("devices", {}),
        )


NOTHING = Sample(0.0, 0.0, None, None, None, 0, 0)
"""A sample without figures."""


class Sampler:
    """Takes samples. `calls` returns the calls so far, `devices` what devices count."""

    def __init__(self, calls: Callable[[], int], devices: Callable[[], dict[str, dict[str, int]]]) -> None:
        self._calls, self._devices = calls, devices
        self._begun = perf_counter()
        self._last = self._counters()
        self._gpus: tuple[str, ...] | None = None
        self._stride = self._skipped = 1
        self.samples: list[Sample] = []

    def _counters(self) -> tuple[float, float, float, int | None, int]:
        from tritmark.harness.measure.system_load import core_times

        return perf_counter(), process_time(), core_times()[0], throttle_count(), self._calls()

    def take(self) -> Sample:
        """Take a sample, and keep it unless there are many."""
        from tritmark.harness.machine import nvml
        from tritmark.harness.machine.cpu import clocks
        from tritmark.harness.machine.memory import rss_bytes
        from tritmark.harness.measure.system_load import SHORTEST_S

        now, last = self._counters(), self._last
        self._last = now
        seconds = max(now[0] - last[0], 1e-9)
        own = (now[1] - last[1]) / seconds
        others = max(0.0, (now[2] - last[2]) / seconds - own) if seconds >= SHORTEST_S else None
        if self._gpus is None:
            self._gpus = nvml.uuids()
        found = clocks()
        sample = Sample(
            at_s=now[0] - self._begun,
            own_cores=own,
            other_cores=others,
            clock_hz=sum(found) / len(found) if found else None,
            throttled=None if now[3] is None or last[3] is None else now[3] - last[3],
            rss=rss_bytes(),
            calls=now[4] - last[4],
            gpus={uuid: _gpu(nvml.health(uuid)) for uuid in self._gpus},
            devices=self._devices(),
        )
        self._skipped += 1
        if self._skipped >= self._stride:
            self._skipped = 0
            self.samples.append(sample)
            if len(self.samples) >= MOST:
                self.samples = self.samples[::2]
                self._stride *= 2
        return sample


def _gpu(health: Any) -> GpuSample:
    return GpuSample(
        health.utilization,
        health.clock_hz,
        health.power,
        health.temperature,
        health.memory_used,
        tuple(each for each in health.throttle or () if each != "gpu_idle"),
    )


def throttle_count(sys: Path = SYS) -> int | None:
    """Times since boot that cores of this process lowered their clocks for their temperature; None if unknown."""
    from tritmark.harness.machine.cpu import CPUS, affinity

    found = [
        number(sys / CPUS / f"cpu{core}" / "thermal_throttle" / "core_throttle_count") for core in sorted(affinity())
    ]
    known = [each for each in found if each is not None]
    return sum(known) if known else None


def machine_id() -> str:
    """Identifies the machine and what of it this process may use: times of different ids are not compared."""
    from hashlib import sha256

    from tritmark.harness.machine import cpu, memory, nvml

    same = cpu.model(), len(cpu.affinity()), cpu.usable_cores(), sorted(cpu.caches().items()), memory.total() >> 30
    return sha256(repr((same, nvml.names())).encode()).hexdigest()[:12]
