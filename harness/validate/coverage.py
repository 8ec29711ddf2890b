"""Classes of test cases, and those that a judgement reached.

A factor is a property that varies between cases: the size of an axis, the kind of values, the placement of arrays, the
threads. Kernels treat the classes of a factor differently. For an axis they are the greatest power of two that divides
it (vector bodies and tails), and, for rows of a product and other short axes, ranges between the widths of register
blocks. A class is covered if a case of it was judged, and a pair if one case was in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from tritmark.harness.spec import Axes, Op, Sizes

Classes = Mapping[str, str]
"""The class of each factor."""

_DIVISORS = (256, 128, 64, 32, 16, 8, 4, 2)
_RANGES = ((1, 1), (2, 3), (4, 7), (8, 15), (16, 31), (32, 70))
"""For short axes: 1, and the sizes that register blocks of 2, 4, 8, 16 and 32 rows fill or leave over."""

_SHORT = 128


def _is_short(sizes: Sizes) -> bool:
    return sizes.usual <= _SHORT


def axis_classes(axis: str, sizes: Sizes) -> tuple[str, ...]:
    """The classes of one axis."""
    if sizes.often and sizes.most <= 1:
        return tuple(f"{axis} = {size}" for size in sizes.often)
    if _is_short(sizes):
        return (
            *(_range(axis, low, high) for low, high in _RANGES if low <= sizes.usual),
            f"{axis} over {_RANGES[-1][1]}",
        )
    return (*(f"{axis} divisible by {divisor}" for divisor in _DIVISORS), f"{axis} odd")


def _range(axis: str, low: int, high: int) -> str:
    return f"{axis} = {low}" if low == high else f"{axis} from {low} to {high}"


def axis_class(axis: str, size: int, sizes: Sizes) -> str:
    """The class of one size."""
    if _is_short(sizes):
        for low, high in _RANGES:
            if low <= size <= high:
                return _range(axis, low, high)
        return f"{axis} over {_RANGES[-1][1]}"
    for divisor in _DIVISORS:
        if size % divisor == 0:
            return f"{axis} divisible by {divisor}"
    return f"{axis} odd"


def factors(op: Op, threads: Sequence[int], layouts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The classes of each factor of an op's cases. An axis with few sizes is not a factor."""
    found = {axis: axis_classes(axis, sizes) for axis in op.axes if not (sizes := op.sizes.get(axis, Sizes())).often}
    found["family"] = tuple(f"{family} values" for family in op.input_families)
    if len(threads) > 1:
        found["threads"] = tuple(_threads(count) for count in threads)
    found["layout"] = tuple(layouts)
    return found


def classes(op: Op, axes: Axes, family: str, threads: int, layout: str) -> dict[str, str]:
    """The class of each factor that a case is in."""
    found = {
        axis: axis_class(axis, axes[axis], sizes)
        for axis in op.axes
        if not (sizes := op.sizes.get(axis, Sizes())).often
    }
    return {**found, "family": f"{family} values", "threads": _threads(threads), "layout": layout}


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


@dataclass(slots=True)
class CoverageTally:
    """Classes and pairs that cases reached."""

    factors: Mapping[str, tuple[str, ...]]
    singles: set[str] = field(default_factory=set)
    pairs: set[tuple[str, str]] = field(default_factory=set)

    def new(self, found: Classes) -> int:
        """Value of a case: its new pairs and classes. A new class counts as many pairs."""
        kept = self._kept(found)
        return sum(pair not in self.pairs for pair in combinations(kept, 2)) + 10 * sum(
            each not in self.singles for each in kept
        )

    def add(self, found: Classes) -> None:
        """Add a case."""
        kept = self._kept(found)
        self.singles.update(kept)
        self.pairs.update(combinations(kept, 2))

    def _kept(self, found: Classes) -> list[str]:
        return [found[factor] for factor in self.factors if found.get(factor) in self.factors[factor]]

    @property
    def missing(self) -> list[str]:
        """Classes without a case."""
        return [each for classes in self.factors.values() for each in classes if each not in self.singles]
