"""Intervals of gains."""

from __future__ import annotations

from tritmark.harness.record import Gain, Timing


def gain(low: float, high: float) -> Gain | None:
    """From `low` to `high`, what is under 1 lifted to 1; None where nothing above 1 is left."""
    return Gain(low=max(1.0, low), high=high) if high > max(1.0, low) or high == low > 1 else None


def over(before: Timing, after: Timing) -> Gain | None:
    """The one time over the other, from the 95 % intervals of both; None where it may be no gain at all."""
    return gain(before.low_ns / after.high_ns, before.high_ns / after.low_ns)


def capped(found: Gain, cap: float) -> Gain:
    """The same, nowhere above `cap`, which is at least 1."""
    return Gain(low=min(found.low, cap), high=min(found.high, cap))
