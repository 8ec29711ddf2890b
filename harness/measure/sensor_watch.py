"""Readings of sensors before, during and after a measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from time import perf_counter
from typing import TypeVar

from tritmark.harness.machine import cpu_sensors, nvml
from tritmark.harness.machine.reading import Reading
from tritmark.harness.record import HOST, SensorRange, UnitSensors

N = TypeVar("N", int, float)

PAUSE_S = 0.1
"""Least pause between two readings. The timing of a Run takes a second or more."""
SHARE = 0.004
"""Most time of one core that the readings take: what the place of a kernel in memory changes (LAYOUT_NOISE)."""

_CAPPED, _IDLE = "sw_power_cap", "gpu_idle"


@dataclass(frozen=True, slots=True)
class _Unit:
    name: str
    read: Callable[[], Reading]
    throttled_ns: Callable[[], dict[str, int]]


def _units(gpus: tuple[str, ...]) -> list[_Unit]:
    if not gpus:
        return [_Unit(HOST, cpu_sensors.sensors, cpu_sensors.throttled_ns)]
    return [_Unit(uuid, partial(nvml.sensors, uuid), partial(nvml.throttled_ns, uuid)) for uuid in gpus]


class SensorWatch:
    """Reads the sensors of the GPUs with these UUIDs, or of the CPU if there are none, in a `with`.

    A thread reads every PAUSE_S, or less often if a reading takes long; `summary` follows the `with`.
    """

    def __init__(self, gpus: tuple[str, ...] = ()) -> None:
        self._units = _units(gpus)
        self._before = [unit.read() for unit in self._units]
        self._after = self._before
        self._during: list[list[Reading]] = [[] for _ in self._units]
        self._begun = perf_counter()
        self._counted = [unit.throttled_ns() for unit in self._units]
        self._growth: list[dict[str, int]] = [{} for _ in self._units]
        self._ended = Event()
        self._thread = Thread(target=self._watch, name="tritmark sensors", daemon=True)

    def __enter__(self) -> SensorWatch:
        if any(not reading.note for reading in self._before):
            self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._after = [unit.read() for unit in self._units]
        # Drivers number these counters differently: what grew faster than time is something else.
        longest = 2e9 * (perf_counter() - self._begun)
        for unit, before, growth in zip(self._units, self._counted, self._growth, strict=True):
            # A counter that fell was reset with the driver.
            grown = {name: max(0, now - before[name]) for name, now in unit.throttled_ns().items() if name in before}
            growth.update({name: ns for name, ns in grown.items() if ns <= longest})

    def summary(self) -> tuple[UnitSensors, ...]:
        """The readings of each unit."""
        return tuple(
            UnitSensors(
                unit=unit.name,
                before=before,
                during=_range(during),
                after=after,
                throttled_ns=growth,
                capped_clock_hz=_capped(during),
            )
            for unit, before, during, after, growth in zip(
                self._units, self._before, self._during, self._after, self._growth, strict=True
            )
        )

    def _watch(self) -> None:
        pause = PAUSE_S
        while not self._ended.wait(pause):
            begun = perf_counter()
            for unit, found in zip(self._units, self._during, strict=True):
                found.append(unit.read())
            pause = max(PAUSE_S, (perf_counter() - begun) / SHARE)


def _range(found: list[Reading]) -> SensorRange:
    reasons = Counter(reason for each in found for reason in each.throttle or ())
    return SensorRange(
        readings=len(found),
        clock_low_hz=min(_known(each.clock_low_hz for each in found), default=None),
        clock_high_hz=max(_known(each.clock_high_hz for each in found), default=None),
        temperature_low=min(_known(each.temperature for each in found), default=None),
        temperature_high=max(_known(each.temperature for each in found), default=None),
        power_high=max(_known(each.power for each in found), default=None),
        throttle=dict(sorted(reasons.items())),
    )


def _known(values: Iterable[N | None]) -> list[N]:
    return [value for value in values if value is not None]


def _capped(found: list[Reading]) -> int | None:
    clocks = [
        each.clock_low_hz
        for each in found
        if each.throttle is not None and _CAPPED in each.throttle and _IDLE not in each.throttle
    ]
    return min(_known(clocks), default=None)
