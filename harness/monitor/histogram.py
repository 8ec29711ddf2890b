"""Times as counts in buckets, 32 for each doubling, so that no time is dropped and any two sets can be added or
subtracted. A bucket is at most 3.2 % wide, and quantiles are interpolated within it."""

from __future__ import annotations

from collections.abc import Mapping

BITS = 5
"""A bucket is found by the first BITS + 1 bits of a time."""
_SIZE = 1 << BITS

Histogram = Mapping[int, int]
"""Number of a bucket to count."""


def bucket(ns: int) -> int:
    """The number of the bucket of a time in nanoseconds. Times below 64 have their own."""
    shift = ns.bit_length() - BITS - 1
    return (shift << BITS) + (ns >> shift) if shift > 0 else ns


def bounds(number: int) -> tuple[int, int]:
    """The least time in a bucket, and the least time above it."""
    if number < 2 * _SIZE:
        return number, number + 1
    shift = (number >> BITS) - 1
    low = (number - (shift << BITS)) << shift
    return low, low + (1 << shift)


def quantile(counts: Histogram, share: float) -> float | None:
    """The time in nanoseconds below which that share of the times lies; None without times."""
    total = sum(counts.values())
    if not total:
        return None
    wanted, before = share * total, 0
    for number in sorted(counts):
        here = counts[number]
        if here and before + here >= wanted:
            low, high = bounds(number)
            return low + (high - low) * max(0.0, wanted - before) / here if high - low > 1 else float(low)
        before += here
    raise AssertionError("a share above 1")


def total(counts: Histogram) -> int:
    """The number of times."""
    return sum(counts.values())


def added(one: Histogram, other: Histogram, sign: int = 1) -> dict[int, int]:
    """The sum of both, or with `sign` -1 the difference. Empty buckets are left out."""
    made = dict(one)
    for number, count in other.items():
        made[number] = made.get(number, 0) + sign * count
    return {number: count for number, count in made.items() if count}
