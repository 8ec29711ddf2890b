"""Test cases drawn at random, so that whatever one shape, layout, thread count or kind of value triggers has its chance in every Record.

Each axis takes every residue modulo RESIDUES equally often (a Latin hypercube: shuffled decks, dealt anew when they are empty), and so do
families, thread counts and layouts. What meets what is steered: of several cases that could be dealt next, the one with most pairs of
classes (see coverage) that no case had yet is taken, so that all pairs meet early (AETG: Cohen, Dalal, Fredman, Patton, "The AETG system",
IEEE Transactions on Software Engineering 23, 1997).

Shapes that a kernel's constraints or a format refuse are rounded to ones that they admit, never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from typing import Generic, TypeVar

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Axes, Op, Sizes, Tensor, Variant, Workload
from tritmark.harness.validate.coverage import Tally, axis_class, classes, factors
from tritmark.harness.validate.placement import Placement, named

RESIDUES = 128
"""Residues of an axis that are dealt equally often: twice the widest vector of any instruction set, in bytes."""

THREADS = (1, 2, 3, 5, 7)
"""Thread counts beside the number of cores: few, and odd ones that divide no tile."""

LAYOUTS = ("aligned", "one array off", "every array off", "ragged rows")
"""How arrays lie: at multiples of the alignment, one of them elsewhere, each at an offset of its own, and with rows apart."""

_LONG = 16
"""One in so many cases takes the larger sizes of an axis."""

_CHOICES = 6
"""Cases that are considered for each that is taken; beyond it pairs meet hardly earlier."""

_MOST_ELEMENTS = 1 << 18
"""Elements of all inputs of a case. Larger ones cost more than they can show: what only size triggers is measured workloads' part."""

_MOST_WORK = 1 << 23
"""The product of all axes, which for a product is how many multiplications the reference does."""

_TRIES = 24
"""For a class that no case is in yet."""

_FACTORS = tuple(1 << power for power in range(1, 13))

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Drawn:
    """One test case."""

    number: int
    """Its place in the order of the draw, from 0."""
    axes: Mapping[str, int]
    family: str
    threads: int
    layout: str
    placement: Placement
    seed: int
    """Of its data, and of what else is random about it."""

    def __str__(self) -> str:
        shape = ", ".join(f"{axis}={size}" for axis, size in self.axes.items())
        return f"{shape} ({self.family}, {self.layout}, {self.threads} thread{'s' * (self.threads > 1)})"


class _Deck(Generic[T]):
    """Deals the members of a sequence in random order, each as often as the others."""

    def __init__(self, members: Sequence[T], rng: np.random.Generator) -> None:
        self._members, self._rng = members, rng
        self._left: list[int] = []

    def deal(self) -> T:
        if not self._left:
            self._left = [int(at) for at in self._rng.permutation(len(self._members))]
        return self._members[self._left.pop()]


class _Axis:
    """Sizes of one axis."""

    def __init__(self, sizes: Sizes, rng: np.random.Generator) -> None:
        self._sizes, self._rng = sizes, rng
        # A short axis takes each of its sizes equally often, a longer one each residue.
        short = sizes.usual <= RESIDUES
        self._short = _Deck(range(1, sizes.usual + 1), rng) if short else None
        self._residues = _Deck(range(RESIDUES), rng)
        self._often = _Deck(sizes.often, rng) if sizes.often else None

    def deal(self, *, long: bool) -> int:
        sizes = self._sizes
        if self._often is not None and self._rng.random() < 0.5:
            return self._often.deal()
        if self._short is not None and not long:
            return self._short.deal()
        # Sizes are as likely to be under the geometric mean of the range as over it, so short ones are not rare.
        most = sizes.most if long else sizes.usual
        rough = float(np.exp(self._rng.uniform(0, np.log(most))))
        size = int(rough) // RESIDUES * RESIDUES + self._residues.deal()
        return min(size or RESIDUES, max(sizes.most, 1))


class Drawer:
    """Draws cases of one op for variants with the same constraints.

    `format` is the key's; `cores` the thread count called "all"; `threaded`: the device works with the host's threads.
    """

    def __init__(self, op: Op, variant: Variant, *, cores: int, threaded: bool, seed: int) -> None:
        self._op, self._variant = op, variant
        mark = sha256(repr((op.name, variant.key, variant.constraints, sorted(variant.dense))).encode()).digest()
        self._rng = np.random.default_rng([seed, int.from_bytes(mark[:8], "little")])
        self._axes = {axis: _Axis(op.sizes.get(axis, Sizes()), self._rng) for axis in op.axes}
        self._families = _Deck(op.families, self._rng)
        self._threads = _Deck(tuple(dict.fromkeys((*THREADS, cores))) if threaded else (cores,), self._rng)
        self._ragged = [tensor for tensor in op.inputs if tensor.rows_apart and tensor.name not in variant.dense]
        self._layouts = _Deck(LAYOUTS if self._ragged else LAYOUTS[:-1], self._rng)
        self._arrays = [tensor for tensor in (*op.inputs, *op.outputs) if tensor.axes]
        self.tally = Tally(factors(op, self._threads._members, self._layouts._members))
        self.refused: set[str] = set()
        """Classes that the constraints do not admit, as far as was tried."""
        self._number = 0

    def draw(self, count: int, corners: Sequence[Workload] = ()) -> list[Drawn]:
        """The corners, `count` cases beside them, and more for classes that none of these is in."""
        cases = [case for corner in corners if (case := self._corner(corner)) is not None]
        cases += [self._next() for _ in range(count)]
        for factor, found in self.tally.factors.items():
            for wanted in found:
                if wanted not in self.tally.singles:
                    case = self._in_class(factor, wanted)
                    if case is None:
                        self.refused.add(wanted)
                    else:
                        cases.append(case)
        return cases

    @property
    def missing(self) -> list[str]:
        """Classes that the contract and the constraints admit, as far as was tried, and that no case is in."""
        return [each for each in self.tally.missing if each not in self.refused]

    def _corner(self, corner: Workload) -> Drawn | None:
        """A workload of a suite, as a case of the sequence; None where nothing near it is admitted."""
        axes = fitting(self._op, self._variant, corner.axes)
        if axes is None:
            return None
        itemsizes = {tensor.name: _itemsize(tensor, self._variant) for tensor in self._arrays}
        placement = named(corner.layout, itemsizes, frozenset(tensor.name for tensor in self._ragged))
        layout = "ragged rows" if placement.gaps else "every array off" if placement.offsets else "aligned"
        return self._taken(Drawn(self._number, axes, corner.family, self._threads.deal(), layout, placement, self._seed()))

    def _next(self) -> Drawn:
        threads, layout, family = self._threads.deal(), self._layouts.deal(), self._families.deal()
        long = self._number % _LONG == _LONG - 1
        shapes = [self._shape(long=long) for _ in range(_CHOICES)]
        axes = max(shapes, key=lambda each: self.tally.new(classes(self._op, each, family, threads, layout)))
        return self._made(axes, family, threads, layout)

    def _in_class(self, factor: str, wanted: str) -> Drawn | None:
        """A case of that class, or None if none of many tries gives one: constraints round it away."""
        for _ in range(_TRIES):
            family = wanted.removesuffix(" values") if factor == "family" else self._families.deal()
            layout = wanted if factor == "layout" else self._layouts.deal()
            threads = int(wanted.split(maxsplit=1)[0]) if factor == "threads" else self._threads.deal()
            axes = self._shape(long=False)
            if factor in axes:
                sizes = self._op.sizes.get(factor, Sizes())
                fit = [size for size in range(1, 4 * RESIDUES + 1) if axis_class(factor, size, sizes) == wanted]
                axes = {**axes, factor: int(self._rng.choice(fit))}
            axes = fitting(self._op, self._variant, axes) or axes
            if classes(self._op, axes, family, threads, layout)[factor] == wanted:
                return self._made(axes, family, threads, layout)
        return None

    def _made(self, axes: Axes, family: str, threads: int, layout: str) -> Drawn:
        axes = fitting(self._op, self._variant, axes) or dict(axes)
        return self._taken(Drawn(self._number, axes, family, threads, layout, self._placed(layout), self._seed()))

    def _taken(self, case: Drawn) -> Drawn:
        self._number += 1
        self.tally.add(self.classes(case))
        return case

    def classes(self, case: Drawn) -> dict[str, str]:
        """Which class of each factor a case is in."""
        return classes(self._op, case.axes, case.family, case.threads, case.layout)

    def _seed(self) -> int:
        return int(self._rng.integers(1 << 62))

    def _shape(self, *, long: bool) -> dict[str, int]:
        grows = str(self._rng.choice(list(self._axes))) if long else ""
        axes = {axis: each.deal(long=axis == grows) for axis, each in self._axes.items()}
        # What is too much is taken from the axes that are not the long one, the largest first.
        while self._too_much(axes):
            rest = [axis for axis in axes if axis != grows and axes[axis] > 1] or list(axes)
            largest = max(rest, key=lambda axis: axes[axis])
            axes[largest] = max(1, axes[largest] // 2 + int(self._rng.integers(2)))
        return fitting(self._op, self._variant, axes, encoded=False) or axes

    def _too_much(self, axes: Axes) -> bool:
        elements = sum(prod(axes.get(axis, 1) for axis in tensor.axes) for tensor in self._arrays)
        return elements > _MOST_ELEMENTS or prod(axes.values()) > _MOST_WORK * (1 if len(axes) > 2 else _MOST_ELEMENTS)

    def _placed(self, layout: str) -> Placement:
        rng, names = self._rng, [tensor.name for tensor in self._arrays]
        if layout == "aligned":
            return Placement()
        flush = bool(rng.random() < 0.5)
        if layout == "one array off":
            return Placement({str(rng.choice(names)): int(rng.integers(1, 64))}, flush=False)
        offsets = {name: int(rng.integers(64)) for name in names}
        gaps = {tensor.name: self._gap(tensor) for tensor in self._ragged if layout == "ragged rows"}
        return Placement(offsets, gaps, flush=flush)

    def _gap(self, tensor: Tensor) -> int:
        """Bytes: a few odd elements, a vector, a cache line, or many."""
        width = int(self._rng.choice([4, 12, 20, 28, 32, 64, 128, 1028]))
        return width if self._rng.random() < 0.5 else int(self._rng.integers(4, 512))


def fitting(op: Op, variant: Variant, axes: Axes, *, encoded: bool = True) -> dict[str, int] | None:
    """The axes, or near ones that the variant's constraints and, if `encoded`, its format admit; None where none are found.

    Larger ones are tried first: rounded up to multiples of ever higher powers of two, then as few axes as possible of those.
    """
    if _admitted(op, variant, axes, encoded):
        return dict(axes)
    for factor in _FACTORS:
        rounded = {axis: -(-size // factor) * factor for axis, size in axes.items()}
        for candidate in (rounded, *({**axes, axis: size} for axis, size in rounded.items())):
            if _admitted(op, variant, candidate, encoded):
                return _restored(op, variant, axes, candidate, encoded)
    # A least size, or one of a few.
    for power in _FACTORS:
        for axis in axes:
            for size in (axes[axis] * power, max(1, axes[axis] // power), power):
                candidate = {**axes, axis: size}
                if _admitted(op, variant, candidate, encoded):
                    return candidate
    return None


def _restored(op: Op, variant: Variant, axes: Axes, rounded: dict[str, int], encoded: bool) -> dict[str, int]:
    """As many axes as they were as is admitted."""
    for axis, size in axes.items():
        candidate = {**rounded, axis: size}
        if candidate != rounded and _admitted(op, variant, candidate, encoded):
            rounded = candidate
    return rounded


def _admitted(op: Op, variant: Variant, axes: Axes, encoded: bool) -> bool:
    if any(constraint.refusal(axes) is not None for constraint in variant.constraints):
        return False
    if not encoded or variant.key.format == "none":
        return True
    try:
        op.encode(op.generate(axes, op.families[0], np.random.default_rng(0)), axes, variant.key.format)
    except InvalidArgumentError:
        return False
    return True


def _itemsize(tensor: Tensor, variant: Variant) -> int:
    return named_dtype(variant.key.dtype if tensor.dtype == "key" else tensor.dtype).itemsize
