"""Interleaved comparison of two codes: short samples in one process. All comparisons use it.

On a noisy machine (2 cores, steal time, speeds that change within milliseconds), blocks of samples, means, minima and
significance tests gave false alarms in 10 to 60 % of cases. This method takes the median of the log ratios of adjacent
pairs, with samples of 0.1 to 0.35 ms and an order drawn for each pair. It detected every slow-down of 5 % and gave no
false alarm at a dead band of 1 or 2 %: a disturbance affects both halves of a pair, or few pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tritmark.harness.measure.statistics import interval
from tritmark.harness.spec import ArrayChange, ChangingClock, Clock, Launch

if TYPE_CHECKING:
    from tritmark.harness.measure.stopping import StoppingRule
    from tritmark.harness.record import Ratio

SHORTEST_NS = 100_000
"""The least length of a sample: in shorter ones, the clock and the first call dominate. Above 350,000, the noise
changes between the halves of a pair."""

_TARGET_NS = 200_000
_TRIES = 3
_PATIENCE_NS = 50_000_000


class Side(Protocol):
    """One side of an interleaved comparison."""

    def sample(self) -> float:
        """Nanoseconds for one call, the mean over a sample."""


@dataclass(slots=True)
class Timed:
    """Launches with their clock and the calls per sample. Samples continue the cycle through the launches.

    `warm`: an untimed call precedes each sample, so that the cache contents of the other side do not count.
    """

    launches: Sequence[Launch]
    clock: Clock
    calls: int = 1
    warm: bool = False
    made: int = field(default=0, init=False)
    """Calls so far, including untimed ones."""
    _at: int = field(default=0, init=False)
    """Index of the next launch."""

    def fit(self) -> None:
        """Change the calls per sample, by half at most, and drop a few launches, so that samples begin at the same
        places of each cycle.

        A clock that prepares sequences of calls, such as recorded graphs, then needs only a few sequences.
        """
        sets = len(self.launches)
        if self.calls >= sets:
            self.calls = sets * max(1, round(self.calls / sets))
        else:
            parts = max(1, round(sets / self.calls))
            self.calls = sets // parts
            self.launches = self.launches[: self.calls * parts]
        self._at = 0

    @property
    def last(self) -> int:
        """Index of the launch that was called last."""
        return (self._at - 1) % len(self.launches)

    def sample(self) -> float:
        """Nanoseconds for one call, the mean over a sample."""
        if self.warm:
            self.take(1)
        return self.take(self.calls) / self.calls

    def take(self, calls: int) -> int:
        """Nanoseconds for the next `calls` calls of the cycle."""
        taken = self.clock.sample(self.launches, self._at, calls)
        return self._taken(taken, calls)

    def sample_around(self, before: int, changes: Sequence[ArrayChange]) -> int | None:
        """Nanoseconds for all calls of a sample, with `changes` made before call `before` (from 0). If the clock cannot
        change arrays, returns None and does nothing."""
        if not isinstance(self.clock, ChangingClock):
            return None
        warm = int(self.warm)
        taken = self.clock.sample_around(self.launches, self._at, self.calls, before, changes, warm=warm)
        return self._taken(taken, warm + self.calls)

    def _taken(self, taken: int, calls: int) -> int:
        self._at = (self._at + calls) % len(self.launches)
        self.made += calls
        return max(taken, 1)  # no clock resolves less than a nanosecond


def calibrate(timed: Timed) -> float:
    """Set the calls per sample so that a sample takes 0.1 to 0.35 ms, or one call if that takes longer. Returns the
    approximate nanoseconds of a call."""
    timed.calls = 1
    while True:
        call, spent = timed.sample(), 0.0
        for _ in range(1, _TRIES):
            spent += call * timed.calls
            if spent > _PATIENCE_NS:
                break
            call = min(call, timed.sample())
        if call * timed.calls >= SHORTEST_NS / 2:
            timed.calls = max(1, round(_TARGET_NS / call))
            timed.fit()
            return call
        timed.calls = max(2 * timed.calls, min(64 * timed.calls, int(SHORTEST_NS / call)))


@dataclass(frozen=True, slots=True)
class Alternation:
    """The result of an interleaved comparison: all samples, pair by pair, in nanoseconds per call."""

    a_ns: tuple[float, ...]
    b_ns: tuple[float, ...]
    stopped: str
    """Reason of the rule that ended it."""

    def rounded(self, digits: int) -> Alternation:
        """The same, with samples rounded to `digits` significant digits."""

        def short(samples: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(float(f"{sample:.{digits}g}") for sample in samples)

        return Alternation(short(self.a_ns), short(self.b_ns), self.stopped)

    def ratio(self, scale: float = 1.0) -> Ratio:
        """`scale` times b over a: the median ratio of the pairs and its 95 % interval."""
        from tritmark.harness.record import Ratio

        logs = np.log(self.b_ns) - np.log(self.a_ns) + log(scale)
        low, high = interval(logs)
        return Ratio(
            median=float(np.exp(np.median(logs))), low=float(np.exp(low)), high=float(np.exp(high)), pairs=len(logs)
        )


class Interleaving:
    """Times two sides interleaved, in an order drawn for each pair, and keeps every sample. Calibrate both first."""

    def __init__(self, a: Side, b: Side, rng: np.random.Generator) -> None:
        self._a, self._b, self._rng = a, b, rng
        self.a_ns: list[float] = []
        self.b_ns: list[float] = []
        self.logs: list[float] = []
        """log(b/a) of each pair."""

    def pair(self) -> float:
        """Time one more pair. Returns log(b/a)."""
        if self._rng.random() < 0.5:
            self.a_ns.append(self._a.sample())
            self.b_ns.append(self._b.sample())
        else:
            self.b_ns.append(self._b.sample())
            self.a_ns.append(self._a.sample())
        self.logs.append(log(self.b_ns[-1] / self.a_ns[-1]))
        return self.logs[-1]

    def pairs(self, count: int) -> list[float]:
        """Time `count` more pairs. Returns log(b/a) of each."""
        return [self.pair() for _ in range(count)]


def alternate(a: Side, b: Side, rng: np.random.Generator, stop: StoppingRule) -> Alternation:
    """Time `a` and `b` interleaved until `stop` is done. It receives the logarithm of each pair's ratio.

    At least two pairs are taken, since one has no interval. No pair is dropped. Calibrate both first.
    """
    turns = Interleaving(a, b, rng)
    while True:
        stop.add(turns.pair())
        if stop.done() and len(turns.logs) > 1:
            return Alternation(tuple(turns.a_ns), tuple(turns.b_ns), stop.reason)
