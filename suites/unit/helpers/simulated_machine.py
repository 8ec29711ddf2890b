"""A device on simulated time: what its launches cost, its noise and its ceilings are known exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import exp, log
from typing import Any

import numpy as np

from tritmark.harness.measure.buffers import Rotation
from tritmark.harness.measure.survey import BYTES
from tritmark.harness.spec import Ceiling, Device, Launch

READ, WRITE, COMPUTE = 20e9, 10e9, 400e9
"""Rates of the simulated machine: bytes/s, bytes/s, operations/s."""


class SimulatedLaunch:
    """Takes `cost` nanoseconds on a quiet machine; does `work` when it runs, which only `honest` ones count."""

    def __init__(
        self,
        cost: float,
        work: Callable[[], None] = lambda: None,
        *,
        pointer: int | None = 1,
        honest: bool = True,
        threads: int = 1,
    ) -> None:
        self.cost = cost
        self.threads = threads
        self.runs = 0
        self.ran = "simulated"
        self.threads_used = threads
        self.bad = -1
        self.pointer = pointer
        self._work = work
        self._honest = honest

    def run(self) -> None:
        self._work()
        self.runs += self._honest


FARTHEST = log(4)
"""A drift without an end makes calls so short that calibrating takes billions of them for a sample."""


class SimulatedClock:
    """A machine whose speed drifts, flips by a factor of two and is taken away at times, as shared ones do. `noise`
    0 is quiet. `passed_ns` is the time that its samples took."""

    name = "simulated"

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._noise = noise
        self._drift = 0.0
        self._slow = False
        self.order: list[int] = []
        self.passed_ns = 0

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        taken = 0.0
        for call in range(calls):
            index = (first + call) % len(launches)
            self.order.append(index)
            launch = launches[index]
            launch.run()
            assert isinstance(launch, SimulatedLaunch)
            taken += launch.cost
        took = max(1, round(taken * self._speed()))
        self.passed_ns += took
        return took

    def _speed(self) -> float:
        if not self._noise:
            return 1.0
        drift = self._drift + self._rng.normal(0, self._noise / 20)
        self._drift = min(FARTHEST, max(-FARTHEST, drift))
        self._slow ^= bool(self._rng.random() < 0.02)
        stolen = 30.0 if self._rng.random() < 0.01 else 0.0
        jitter = abs(self._rng.normal(0, self._noise))
        return exp(self._drift) * (2.0 if self._slow else 1.0) * (1 + jitter) + stolen


TURN = Rotation(nbytes=1 << 20, wanted=1 << 20)


def probe(rate: float, work: Callable[[int], int], buffer: Any, threads: int) -> Launch:
    return SimulatedLaunch(work(buffer.nbytes) / rate * 1e9 / threads, threads=threads)


def times_1024(nbytes: int) -> int:
    return nbytes * 1024


def device(clock: SimulatedClock | None = None, cores: int = 1) -> Device:
    def ceiling(name: str, rate: float, unit: str = BYTES, work: Callable[[int], int] = int) -> Ceiling:
        return Ceiling(name=name, unit=unit, summary=f"{rate:g}", bind=partial(probe, rate, work), work=work)

    probes = {
        "read": ceiling("read", READ * 0.7),
        "read ahead": ceiling("read", READ),
        "write": ceiling("write", WRITE),
        "write around": ceiling("write", WRITE * 0.9),
        "compute": ceiling("compute", COMPUTE, "operations/s", times_1024),
    }
    one = clock or SimulatedClock()
    return Device(
        type="simulated",
        summary="",
        features=frozenset,
        clock=lambda: one,
        ceilings=lambda: probes,
        cores=lambda: cores,
    )
