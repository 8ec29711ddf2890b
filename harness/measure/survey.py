"""Chooses the probe that is the ceiling: of the probes that do the same work, the fastest for a footprint, a thread
count and hot or cold.

The choice takes a few milliseconds per probe and is made once a session for each size class. The ceiling of a kernel is
then measured interleaved with that kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from time import perf_counter_ns
from typing import Any

import numpy as np

from tritmark.harness.errors import UsageError
from tritmark.harness.measure.alternate import Timed, calibrate
from tritmark.harness.measure.buffers import ALIGNMENT, HOST, MOST_SETS, Rotation, alignment, fill, memory_of, rotation
from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.measure.statistics import LEAST_SAMPLES, median
from tritmark.harness.measure.write_back import WriteBackCeiling
from tritmark.harness.spec import Ceiling, Device, Memory

BYTES = "bytes/s"
"""The unit of ceilings that move memory. Other ceilings are measured on one small buffer, for any footprint."""

COMPUTE_BYTES = 1 << 16
START_BYTES = 1 << 14
"""Half of a small L1."""
_NS_EACH = 5_000_000
_CLOSER = 4
"""Factor of the sampling time after a kernel was faster than the chosen probe: in main memory the best two probes
differ by a few percent, and samples scatter more."""
_FEW = 3
"""Rounds after which a probe is dropped if its fastest sample is slower than the best median. A probe as fast as the
best is dropped in one case of eight, which does no harm."""
_FULL = 2
"""A WriteBackCeiling writes this many times the last cache before its rate counts, so that the rate includes its
write-back."""
_MOST_FULL_NS = 20_000_000


def compute_bytes(device: Device, threads: int) -> int:
    """Bytes of the buffer of a compute probe: COMPUTE_BYTES per thread with a core. With less, fast threads (AMX) would
    finish before the last thread is awake."""
    return COMPUTE_BYTES * max(1, min(threads, device.cores()))


class Field:
    """The memory for probes: enough that a rotation over it is cold, and at least `least` bytes."""

    def __init__(self, least: int = 0, turn: Rotation | None = None, memory: Memory = HOST) -> None:
        self.rotation = turn or rotation(memory)
        self._memory = memory
        self._nbytes = max(self.rotation.nbytes, least, 2 * COMPUTE_BYTES)
        self._buffer = memory.allocate(self._nbytes)
        # unwritten pages all map to one zero page, which is always cached
        fill(memory, self._buffer, self._nbytes, 1)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self._nbytes

    def pieces(self, nbytes: int, cold: bool) -> Iterator[Any]:
        """Buffers of `nbytes` that do not overlap: one if hot, as many as there are (MOST_SETS at most) if cold."""
        step = alignment(self._memory)
        stride = -(-nbytes // step) * step
        # A buffer of the whole size needs no padding.
        count = max(1, self._nbytes // stride) if nbytes <= self._nbytes else 0
        for start in range(0, min(count, MOST_SETS if cold else 1) * stride, stride):
            yield self._memory.view(self._buffer, start, (nbytes,), np.uint8)


@dataclass(frozen=True, slots=True)
class FastestProbe:
    """The fastest of the probes of one name, for one size class."""

    ceiling: Ceiling
    threads: int
    """Its thread count: fewer than requested if waking all of them does not pay."""
    rate: float
    """Units a second, the median."""
    fastest: float
    """Units a second in the fastest sample of any probe of that name."""


Roofs = Mapping[tuple[Any, ...], tuple[int, int, float, float]]
"""Roofs in picklable form: the index of the probe, threads, rate, fastest."""


def bind(
    ceiling: Ceiling, device: Device, field: Field, nbytes: int, *, threads: int, cold: bool, rng: np.random.Generator
) -> Timed:
    """A probe over `nbytes`, ready to be calibrated and timed. Cold buffers come in random order, so that none
    prefetches the next."""
    launches = [ceiling.bind(piece, threads) for piece in field.pieces(nbytes, cold)]
    order = [launches[index] for index in rng.permutation(len(launches))]
    return Timed(order, clock_for(device, order), warm=not cold)


class Survey:
    """The roofs of one device, measured on request and kept for the session."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.memory = memory_of(device)
        self._roofs: dict[tuple[Any, ...], FastestProbe] = {}
        self._doubted: set[str] = set()

    def snapshot(self) -> Roofs:
        """The roofs so far, for the survey of another process of this session."""
        probes = list(self.device.ceilings().values())
        return {
            key: (probes.index(roof.ceiling), roof.threads, roof.rate, roof.fastest)
            for key, roof in self._roofs.items()
        }

    def learn(self, given: Roofs) -> None:
        """Add the roofs of another process's survey."""
        probes = list(self.device.ceilings().values())
        self._roofs.update(
            {
                key: FastestProbe(probes[index], threads, rate, fastest)
                for key, (index, threads, rate, fastest) in given.items()
            }
        )

    def names(self) -> list[str]:
        """Names of the device's probes."""
        return list(dict.fromkeys(ceiling.name for ceiling in self.device.ceilings().values()))

    def unit(self, name: str) -> str:
        """The unit of the probes of that name. Raises UsageError if there is none."""
        return self.probes(name)[0].unit

    def roof(self, name: str, field: Field, nbytes: int, *, threads: int, cold: bool) -> FastestProbe:
        """The fastest probe of that name in the size class of `nbytes` (sizes between two powers of two)."""
        return self._known(name, self.probes(name), field, nbytes, threads, cold)

    def again(self, name: str, field: Field, nbytes: int, *, threads: int, cold: bool) -> FastestProbe:
        """Measure the roof again with more samples; it replaces the earlier one."""
        probes = self.probes(name)
        roof = self._find(probes, field, nbytes, threads, cold, closer=True)
        self._roofs[self._key(name, probes, nbytes, threads, cold)] = roof
        return roof

    def forget(self, name: str) -> None:
        """Measure that roof again on the next request, with more samples, since a kernel was faster."""
        self._doubted.add(name)
        self._roofs = {key: roof for key, roof in self._roofs.items() if key[0] != name}

    def most(self, name: str, field: Field, nbytes: int, *, threads: int, cold: bool) -> float:
        """Units per second that `threads` threads cannot exceed: `threads` times the fastest sample of one thread over
        its share of the bytes, or the fastest sample of all together if that is more.

        Every probe of that name counts, also a WriteBackCeiling, since a kernel may do the same. Other processes can
        slow every sample of several threads, but not every sample of one. On the host, at least START_BYTES per thread
        are used: with less, the probe's start dominates its rate, and a kernel may start faster. On a device with its
        own memory, launches may overlap. There the rate over many bytes counts too: the whole field, or half of the
        cache if hot.
        """
        share = many = nbytes
        if self.unit(name) == BYTES:
            if self.memory is HOST:
                many = nbytes = max(nbytes, threads * START_BYTES)
            else:
                many = max(nbytes, field.nbytes if cold else (self.memory.cache or 0) // 2)
            share = max(ALIGNMENT, nbytes // threads)
        probes = self.probes(name)
        alone = self._known(name, probes, field, share, 1, cold).fastest
        together = (self._known(name, probes, field, each, threads, cold).fastest for each in (nbytes, many))
        return max(threads * alone, *together)

    def probes(self, name: str) -> list[Ceiling]:
        """The probes of that name. Raises UsageError if there is none."""
        probes = [ceiling for ceiling in self.device.ceilings().values() if ceiling.name == name]
        if not probes:
            raise UsageError(f"device {self.device.type!r} has no probe for {name!r}; legal: {', '.join(self.names())}")
        return probes

    def _known(
        self, name: str, probes: list[Ceiling], field: Field, nbytes: int, threads: int, cold: bool
    ) -> FastestProbe:
        key = self._key(name, probes, nbytes, threads, cold)
        if key not in self._roofs:
            self._roofs[key] = self._find(probes, field, nbytes, threads, cold, closer=name in self._doubted)
        return self._roofs[key]

    @staticmethod
    def _key(name: str, probes: list[Ceiling], nbytes: int, threads: int, cold: bool) -> tuple[Any, ...]:
        return name, len(probes), nbytes.bit_length(), threads, cold

    def _find(
        self, probes: list[Ceiling], field: Field, nbytes: int, threads: int, cold: bool, *, closer: bool
    ) -> FastestProbe:
        rng = np.random.default_rng(nbytes)
        sides: list[tuple[Ceiling, int, Timed]] = []
        for ceiling in probes:
            # Fewer threads are faster if calls are short, or if other processes keep cores busy.
            some = (3 * threads // 4 or 1, threads // 2 or 1) if cold else ()
            for count in dict.fromkeys((threads, *some, 1)):
                timed = bind(ceiling, self.device, field, nbytes, threads=count, cold=cold, rng=rng)
                calibrate(timed)
                sides.append((ceiling, count, timed))
        last = self.memory.cache
        stays = not cold and (last is None or nbytes <= last)
        # Times are per unit of work, since probes of one name may differ in work per call.
        work = [max(1, ceiling.work(nbytes)) for ceiling, _, _ in sides]
        times: list[list[float]] = [[] for _ in sides]
        fastest = [float("inf")] * len(sides)
        left = list(range(len(sides)))
        begun = perf_counter_ns()
        each_ns = _NS_EACH * (_CLOSER if closer else 1)
        while len(times[left[0]]) < LEAST_SAMPLES or perf_counter_ns() - begun < each_ns * len(left):
            for index in rng.permutation(left):
                ceiling, _, timed = sides[index]
                if isinstance(ceiling, WriteBackCeiling) and not stays:
                    filled = _fill(timed, _FULL * (last or 0) // nbytes)
                    fastest[index] = min(fastest[index], filled / work[index])
                times[index].append(timed.sample() / work[index])
                fastest[index] = min(fastest[index], times[index][-1])
            if len(times[left[0]]) == _FEW:
                best = min(median(times[index]) for index in left)
                left = [index for index in left if fastest[index] <= best]
        # The median ratio to the first, pair by pair, as in every comparison.
        logs = np.log([times[index] for index in left])
        best_at = left[int(np.argmin(np.median(logs - logs[0], axis=1)))]
        ceiling, count, _ = sides[best_at]
        return FastestProbe(ceiling, count, 1e9 / median(times[best_at]), 1e9 / min(fastest))


def _fill(timed: Timed, calls: int) -> float:
    """Call a probe `calls` times, or for _MOST_FULL_NS. Returns the nanoseconds of a call in the fastest sample."""
    end, fastest = perf_counter_ns() + _MOST_FULL_NS, float("inf")
    for _ in range(0, calls, max(1, timed.calls)):
        fastest = min(fastest, timed.sample())
        if perf_counter_ns() > end:
            break
    return fastest


@cache
def survey(device: Device) -> Survey:
    """The device's survey of this session."""
    return Survey(device)
