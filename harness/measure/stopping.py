"""When enough has been sampled. A rule is told each sample and asked whether that is enough; its reason goes into
the record."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from time import perf_counter_ns
from typing import Protocol

from tritmark.harness.measure.statistics import LEAST_SAMPLES, median, order_interval


class StoppingRule(Protocol):
    """One way to decide that enough has been sampled. Samples are logarithms of times or of ratios, so differences
    are relative."""

    @property
    def reason(self) -> str:
        """What the record says where this rule ended the sampling."""

    def add(self, sample: float) -> None:
        """Take notice of one more sample."""

    def done(self) -> bool:
        """Whether the samples so far are enough."""


class _Doubling:
    """Keeps the samples and looks at them each time there are a quarter more, so that looking costs little however
    many there are."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self._next = LEAST_SAMPLES
        self._done = False

    def add(self, sample: float) -> None:
        """Take notice of one more sample."""
        self.samples.append(sample)

    def done(self) -> bool:
        """Whether the samples so far are enough; once they are, they stay so."""
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
    """The median has moved by at most `move`, relative to it, at each of the last `looks` looks: more of the same
    brings nothing.

    A look comes with each quarter more of samples, so `looks` = 7 means that they have grown almost fivefold meanwhile.
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
    """`seconds` have passed since the first sample was begun, by the monotonic clock."""

    reason = "time"

    def __init__(self, seconds: float, now: Callable[[], int] = perf_counter_ns) -> None:
        self._now = now
        self._end = now() + round(seconds * 1e9)

    def add(self, sample: float) -> None:
        """Only time counts."""

    def done(self) -> bool:
        """Whether the time is up."""
        return self._now() >= self._end


class MinimumSamples:
    """Holds another rule back until `samples` have come."""

    def __init__(self, samples: int, rule: StoppingRule) -> None:
        self._left = samples
        self._rule = rule

    @property
    def reason(self) -> str:
        """The other rule's."""
        return self._rule.reason

    def add(self, sample: float) -> None:
        """Take notice of one more sample."""
        self._left -= 1
        self._rule.add(sample)

    def done(self) -> bool:
        """Whether there are enough and the other rule says so."""
        return self._left <= 0 and self._rule.done()


class First:
    """Whichever of several rules says so first; `reason` is that rule's."""

    def __init__(self, *rules: StoppingRule) -> None:
        self._rules = rules
        self.reason = ""

    def add(self, sample: float) -> None:
        """Tell every rule."""
        for rule in self._rules:
            rule.add(sample)

    def done(self) -> bool:
        """Whether any rule says so."""
        for rule in self._rules:
            if rule.done():
                self.reason = rule.reason
                return True
        return False
