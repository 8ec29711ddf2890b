"""Intervals of gains."""

from __future__ import annotations

from tritmark.harness.record import Gain, Timing


def gain(low: float, high: float) -> Gain | None:
    """The gain from max(1, `low`) to `high`; None if it does not exceed 1."""
    return Gain(low=max(1.0, low), high=high) if high > max(1.0, low) or high == low > 1 else None


def over(before: Timing, after: Timing) -> Gain | None:
    """The gain `before` / `after` from the 95 % intervals of both; None if it does not exceed 1."""
    return gain(before.low_ns / after.high_ns, before.high_ns / after.low_ns)


def capped(found: Gain, cap: float) -> Gain:
    """The gain limited to `cap`, which is at least 1."""
    return Gain(low=min(found.low, cap), high=min(found.high, cap))
