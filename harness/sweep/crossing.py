"""Where one kernel overtakes another along the axis: certain only where the intervals on both sides do not overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import exp, log

from tritmark.harness.sweep.points import SweepGrid, SweepLine, SweepPoint
from tritmark.harness.text import units


@dataclass(frozen=True, slots=True)
class KernelCrossing:
    """A crossing of two lines between two measured sizes."""

    before: str
    """Label of the kernel that is faster at smaller sizes."""
    after: str
    """Label of the kernel that is faster at larger sizes."""
    low: int
    """The largest size before the crossing that was measured, and shows `before` to be faster."""
    high: int
    """The smallest size after the crossing that was measured, and shows `after` to be faster."""
    about: float
    """Where straight lines between the points cross, on logarithmic scales."""
    certain: bool
    """The intervals overlap neither at `low` nor at `high`. Otherwise the crossing is within noise."""
    leading: bool
    """At both ends no other kernel is faster than these two: the fastest kernel changes here."""

    def text(self, axis: str) -> str:
        """A sentence."""
        where = f"{axis} about {units.number(self.about)} ({self.low} to {self.high})"
        if self.certain:
            return f"{where}: {self.before} is faster below, {self.after} above"
        return f"{where}: {self.before} and {self.after} cross within noise"


@dataclass(frozen=True, slots=True)
class _Both:
    """Both kernels at one size. `sign` is that of the difference of the medians, `sure` that of the intervals."""

    size: int
    gap: float
    """Log of the first time over the second."""
    sure: int
    """-1: the first is faster, 1: the second, 0: the intervals overlap, or a figure is too noisy."""

    @property
    def sign(self) -> int:
        return (self.gap > 0) - (self.gap < 0)


def crossovers(grid: SweepGrid) -> list[KernelCrossing]:
    """All crossings of a grid's lines in ascending order of sizes, those of the fastest kernel first at equal sizes."""
    best = _fastest(grid.lines)
    found = [each for a, b in combinations(grid.lines, 2) for each in _between(a, b, best)]
    return sorted(found, key=lambda each: (each.about, not each.leading))


def _between(a: SweepLine, b: SweepLine, best: dict[int, float]) -> Iterator[KernelCrossing]:
    """Between two sizes at which the order is certain there is at most one crossing; without such sizes there may be
    one within noise."""
    other = {point.size: point for point in b.points}
    both = [_both(point, other[point.size]) for point in a.points if point.size in other]
    certain = [number for number, each in enumerate(both) if each.sure]
    ends = [0, *certain, len(both) - 1]
    for start, end in pairwise(ends):
        part = both[start : end + 1]
        flips = [(left, right) for left, right in pairwise(part) if left.sign * right.sign < 0] or _ties(part)
        if not flips:
            continue
        first, last = part[0], part[-1]
        sure = first.sure * last.sure < 0
        if not sure:  # the order is the same on both sides, or unknown on one
            first, last = flips[0][0], flips[-1][1]
        left, right = flips[len(flips) // 2]
        before, after = (a, b) if (left.sign or -right.sign) < 0 else (b, a)
        if sure:
            before, after = (a, b) if first.sure < 0 else (b, a)
        yield KernelCrossing(
            before.label,
            after.label,
            first.size,
            last.size,
            _meet(left, right),
            sure,
            all(_leads(size, (a, b), best) for size in (first.size, last.size)),
        )


def _both(a: SweepPoint, b: SweepPoint) -> _Both:
    sure = 0
    if not (a.too_noisy or b.too_noisy):
        sure = -1 if a.high_ns < b.low_ns else 1 if b.high_ns < a.low_ns else 0
    return _Both(a.size, log(a.ns / b.ns), sure)


def _ties(part: Sequence[_Both]) -> list[tuple[_Both, _Both]]:
    """A change of the sign across sizes with equal medians."""
    unequal = [each for each in part if each.sign]
    return [(left, right) for left, right in pairwise(unequal) if left.sign * right.sign < 0]


def _meet(left: _Both, right: _Both) -> float:
    """Where the gap is zero, linear in the log of the size."""
    share = left.gap / (left.gap - right.gap)
    return exp(log(left.size) + share * (log(right.size) - log(left.size)))


def _fastest(lines: Sequence[SweepLine]) -> dict[int, float]:
    """The least time at each size."""
    found: dict[int, float] = {}
    for line in lines:
        for point in line.points:
            found[point.size] = min(point.ns, found.get(point.size, point.ns))
    return found


def _leads(size: int, lines: Sequence[SweepLine], best: dict[int, float]) -> bool:
    return any(point.size == size and point.ns <= best[size] for line in lines for point in line.points)
