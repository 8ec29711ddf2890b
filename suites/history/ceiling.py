"""Percent of the ceiling: the least time for the work over the time of the kernel, both hot, interleaved."""

from __future__ import annotations

from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np

from .cases import SEED, Bound, memory_of
from .shapes import DRY

SAMPLE_NS = 200_000
BUDGET_NS = 0 if DRY else 150_000_000
LEAST_ROUNDS = 6
_COMPUTE_BYTES = 1 << 16


class _Side:
    """A launch, its clock, and as many calls as fill a sample."""

    def __init__(self, launch: Any, clock: Any) -> None:
        self._launch, self._clock = launch, clock
        launch.run()
        call = min(clock.sample([launch], 0, 1) for _ in range(3))
        self._calls = max(1, round(SAMPLE_NS / max(call, 1)))

    def sample(self) -> float:
        """Nanoseconds per call; the first call of each sample is not timed."""
        self._clock.sample([self._launch], 0, 1)
        return max(self._clock.sample([self._launch], 0, self._calls), 1) / self._calls  # type: ignore[no-any-return]


def percent_of_ceiling(bound: Bound) -> float:
    """100 times the longest of read, written and computed at the measured ceilings, over the kernel's time: the median
    over the rounds.

    Each round takes a sample of the kernel and of every probe in a newly drawn order; the fastest probe of a name is
    the ceiling.
    """
    assert bound.op is not None
    assert bound.device is not None
    assert bound.variant is not None
    traffic = bound.op.traffic(bound.axes, bound.variant.key)
    needs = {"read": traffic.read, "write": traffic.written, "compute": traffic.operations}
    footprint = max(1 << 12, traffic.read + traffic.written)
    assert bound.device.clock is not None
    clock = bound.device.clock()
    sides = [_Side(bound.launch, clock)]
    least: list[tuple[str, float]] = []
    for ceiling in bound.device.ceilings().values():
        if needs.get(ceiling.name):
            nbytes = footprint if ceiling.unit == "bytes/s" else _COMPUTE_BYTES
            buffer = memory_of(bound.device).place(np.ones(nbytes, np.uint8))
            sides.append(_Side(ceiling.bind(buffer, bound.threads), clock))
            least.append((ceiling.name, needs[ceiling.name] / ceiling.work(nbytes)))
    rng = np.random.default_rng(SEED)
    times: list[list[float]] = [[] for _ in sides]
    end = perf_counter_ns() + BUDGET_NS
    while len(times[0]) < LEAST_ROUNDS or perf_counter_ns() < end:
        for index in rng.permutation(len(sides)):
            times[index].append(sides[index].sample())
    kernel = np.asarray(times[0])
    fractions: dict[str, float] = {}
    for (name, scale), probe in zip(least, times[1:], strict=True):
        fraction = median((scale * np.asarray(probe) / kernel).tolist())
        fractions[name] = min(fractions.get(name, fraction), fraction)
    return 100 * max(fractions.values())
