"""Which probe is the ceiling: of those that do the same work, the fastest at a footprint, a number of threads and a temperature.

Choosing takes some 10 ms a probe and is done once a session for each size class. What a kernel is shown against is then measured anew, by
turns with that kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import UsageError
from tritmark.harness.measure.alternate import SHORTEST_NS, Timed, calibrate
from tritmark.harness.measure.buffers import ALIGNMENT, MOST_SETS, Rotation, empty, rotation
from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.measure.statistics import LEAST_SAMPLES, median
from tritmark.harness.spec import Ceiling, Device

BYTES = "bytes/s"
"""The unit of ceilings that move memory; any other is measured on the same small buffer, whatever the footprint."""

COMPUTE_BYTES = 1 << 16
_NS_EACH = 10_000_000


class Field:
    """The memory that probes work on: as much as has to be touched before it is cold again, or `least` bytes if that is more."""

    def __init__(self, least: int = 0, turn: Rotation | None = None) -> None:
        self.rotation = turn or rotation()
        self._bytes = empty((max(self.rotation.nbytes, least, 2 * COMPUTE_BYTES),), np.uint8)
        self._bytes[...] = 1  # pages that were never written are all the same one, which is always cached

    def pieces(self, nbytes: int, cold: bool) -> Iterator[npt.NDArray[np.uint8]]:
        """Buffers of `nbytes` that do not overlap: one if hot, as many as there are (MOST_SETS at most) if cold."""
        stride = -(-nbytes // ALIGNMENT) * ALIGNMENT
        for start in range(0, min(self._bytes.nbytes // stride, MOST_SETS if cold else 1) * stride, stride):
            yield self._bytes[start : start + nbytes]


@dataclass(frozen=True, slots=True)
class Roof:
    """The fastest of the probes of one name, where it was looked for."""

    ceiling: Ceiling
    threads: int
    """How many it may use: fewer than asked for where waking them costs more than they bring."""
    rate: float
    """Units a second, the median."""
    fastest: float
    """Units a second in the fastest sample of any probe of that name."""


def bind(ceiling: Ceiling, device: Device, field: Field, nbytes: int, *, threads: int, cold: bool, rng: np.random.Generator) -> Timed:
    """A probe over `nbytes`, ready to be calibrated and timed. Cold buffers come in random order, so that none prefetches the next."""
    launches = [ceiling.bind(piece, threads) for piece in field.pieces(nbytes, cold)]
    order = [launches[index] for index in rng.permutation(len(launches))]
    return Timed(order, clock_for(device, order), warm=not cold)


class Survey:
    """The roofs of one device, found when they are asked for and kept for the session."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._roofs: dict[tuple[Any, ...], Roof] = {}

    def names(self) -> list[str]:
        """What the device's probes measure."""
        return list(dict.fromkeys(ceiling.name for ceiling in self.device.ceilings().values()))

    def unit(self, name: str) -> str:
        """The unit of the probes of that name. Raises UsageError where there is none."""
        return self._probes(name)[0].unit

    def roof(self, name: str, field: Field, nbytes: int, *, threads: int, cold: bool) -> Roof:
        """The fastest probe of that name at about `nbytes` (the next power of two and its half belong together)."""
        key = (name, nbytes.bit_length(), threads, cold)
        if key not in self._roofs:
            self._roofs[key] = self._find(name, field, nbytes, threads, cold)
        return self._roofs[key]

    def _probes(self, name: str) -> list[Ceiling]:
        probes = [ceiling for ceiling in self.device.ceilings().values() if ceiling.name == name]
        if not probes:
            raise UsageError(f"device {self.device.type!r} has no probe for {name!r}; it has: {', '.join(self.names())}")
        return probes

    def _find(self, name: str, field: Field, nbytes: int, threads: int, cold: bool) -> Roof:
        rng = np.random.default_rng(nbytes)
        sides: list[tuple[Ceiling, int, Timed]] = []
        for ceiling in self._probes(name):
            for count in (threads, 1) if threads > 1 else (1,):
                timed = bind(ceiling, self.device, field, nbytes, threads=count, cold=cold, rng=rng)
                # One thread alone can only win where a call is short.
                if calibrate(timed) < SHORTEST_NS or count == threads:
                    sides.append((ceiling, count, timed))
        times: list[list[float]] = [[] for _ in sides]
        end = perf_counter_ns() + _NS_EACH * len(sides)
        while len(times[0]) < LEAST_SAMPLES or perf_counter_ns() < end:
            for index in rng.permutation(len(sides)):
                times[index].append(sides[index][2].sample())
        # Turn by turn against the first, as everything is compared.
        logs = np.log(np.asarray(times))
        best = int(np.argmin(np.median(logs - logs[0], axis=1)))
        ceiling, count, _ = sides[best]
        rates = [each.work(nbytes) * 1e9 / min(taken) for (each, _, _), taken in zip(sides, times, strict=True)]
        return Roof(ceiling, count, ceiling.work(nbytes) * 1e9 / median(times[best]), max(rates))


@cache
def survey(device: Device) -> Survey:
    """The device's survey of this session."""
    return Survey(device)
