"""Stopping rules for sampling. A rule receives each sample and decides whether there are enough. Its reason goes into
the Record."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from time import perf_counter_ns
from typing import Protocol

from tritmark.harness.measure.statistics import LEAST_SAMPLES, median, order_interval


class StoppingRule(Protocol):
    """Decides when to stop sampling. Samples are logarithms of times or of ratios, so differences are relative."""

    @property
    def reason(self) -> str:
        """The text for the Record if this rule ends the sampling."""

    def add(self, sample: float) -> None:
        """Add a sample."""

    def done(self) -> bool:
        """Whether the samples so far are enough."""


class _Doubling:
    """Keeps the samples and checks them whenever their number has grown by 25 %, so that checks cost little."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self._next = LEAST_SAMPLES
        self._done = False

    def add(self, sample: float) -> None:
        """Add a sample."""
        self.samples.append(sample)

    def done(self) -> bool:
        """Whether the samples so far are enough. Once true, it stays true."""
        if not self._done and len(self.samples) >= self._next:
            self._next = len(self.samples) + max(1, len(self.samples) // 4)
            self._done = self._enough()
        return self._done

    def _enough(self) -> bool:
        raise NotImplementedError


class Interval(_Doubling):
    """The median's 95 % interval is at most `width` wide, relative to it."""

    reason = "interval"

    def __init__(self, width: float) -> None:
        super().__init__()
        self._width = width

    def _enough(self) -> bool:
        low, high = order_interval(self.samples)
        return exp(high - low) - 1 <= self._width


class Plateau(_Doubling):
    """The median moved by at most `move`, relative to it, over the last `looks` checks, so more samples gain nothing.

    A check follows each growth of 25 %, so over `looks` = 7 checks the number of samples grows almost fivefold.
    """

    reason = "plateau"

    def __init__(self, move: float, looks: int = 7) -> None:
        super().__init__()
        self._move = move
        self._looks = looks
        self._medians: list[float] = []

    def _enough(self) -> bool:
        self._medians.append(median(self.samples))
        last = self._medians[-self._looks - 1 :]
        return len(last) > self._looks and exp(max(last) - min(last)) - 1 <= self._move


class TimeLimit:
    """`seconds` have passed since its creation, by the monotonic clock."""

    reason = "time"

    def __init__(self, seconds: float, now: Callable[[], int] = perf_counter_ns) -> None:
        self._now = now
        self._end = now() + round(seconds * 1e9)

    def add(self, sample: float) -> None:
        """Nothing to do: only time counts."""

    def done(self) -> bool:
        """Whether the time has passed."""
        return self._now() >= self._end


class MinimumSamples:
    """Delays another rule until there are `samples`."""

    def __init__(self, samples: int, rule: StoppingRule) -> None:
        self._left = samples
        self._rule = rule

    @property
    def reason(self) -> str:
        """The reason of the other rule."""
        return self._rule.reason

    def add(self, sample: float) -> None:
        """Add a sample."""
        self._left -= 1
        self._rule.add(sample)

    def done(self) -> bool:
        """Whether there are enough samples and the other rule is done."""
        return self._left <= 0 and self._rule.done()


class First:
    """Ends with the first of several rules that is done; `reason` is that rule's."""

    def __init__(self, *rules: StoppingRule) -> None:
        self._rules = rules
        self.reason = ""

    def add(self, sample: float) -> None:
        """Add a sample to every rule."""
        for rule in self._rules:
            rule.add(sample)

    def done(self) -> bool:
        """Whether any rule is done."""
        for rule in self._rules:
            if rule.done():
                self.reason = rule.reason
                return True
        return False
