"""Test cases drawn at random, so that whatever one shape, layout, thread count or kind of value triggers has its chance
in every Record.

In half of the cases an axis takes every residue modulo RESIDUES equally often (a Latin hypercube: shuffled decks, dealt
anew when they are empty), in a third every power of two as its greatest divisor of this kind, and in the others every
size up to _SINGLE. Families, thread counts, layouts, each array's address modulo a cache line, the distance of its
rows, and what all of an input is (see salts) are dealt in the same way. What meets what is steered: of several cases
that could be dealt next, the one with most pairs of classes (see coverage) that no case had yet is taken, so that all
pairs meet early (AETG: Cohen, Dalal, Fredman, Patton, "The AETG system", IEEE Transactions on Software Engineering 23,
1997).

Shapes that a kernel's constraints or a format refuse are rounded to ones that they admit, never dropped.

Beside these, each axis of several is far larger than usual in two cases: with few of the others, and with more of them.
An axis whose largest size the op names has it there: a sum of the largest K in float32 is wrong past 2^24, and a
kernel may take another path for several rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from math import exp, log, prod
from random import Random
from typing import Generic, TypeVar

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Axes, MaxSize, MinSize, MultipleOf, Op, Sizes, Tensor, Variant, Workload
from tritmark.harness.validate.coverage import CoverageTally, axis_class, classes, factors
from tritmark.harness.validate.placement import Placement, named
from tritmark.harness.validate.salts import kinds
from tritmark.harness.worker.shared import Edge

RESIDUES = 128
"""Residues of an axis that are dealt equally often: twice the widest vector of any instruction set, in bytes."""

THREADS = (1, 2, 3, 4, 5, 6, 7, 8)
"""Thread counts beside the number of cores."""

LAYOUTS = ("aligned", "one array off", "every array off", "ragged rows")
"""How arrays lie: at multiples of the alignment, one of them elsewhere, each at an offset of its own, and with rows
apart."""

_OFF = ("every array off", "ragged rows")
"""Layouts that are dealt twice as often as the others: in them each array has an address of its own."""

_LINE = 64
"""Bytes modulo which addresses and, in elements, distances of rows are dealt: a cache line, and the widest vector."""

_FLUSH = 0.5
"""Of the cases whose arrays lie before a page that traps: how often they end right there, where each has an address
of its own."""

_NAMED_GAP = 0.25
"""How often rows lie a listed number of elements apart, and not at a distance that is dealt."""

_FAR, _MOST_FAR, _FAR_OFTEN = 1 << 16, 1 << 23, 16
"""Elements that rows lie apart at least where they lie far: a distance that 16 bits do not hold. Bytes that such an
array spans at most. One in so many arrays whose rows lie apart has them far."""

_SALTED, _MOST_SALTED = 0.6, 0.3
"""Of how many inputs of a set of data all is of a kind, and of one how often at most: some faults need several
inputs of a family."""

_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 0)
"""Greatest powers of two that divide an axis. 256 stands for all from there on, and 0 for sizes near their
multiples: what kernels do by blocks of hundreds or thousands has a tail that residues modulo RESIDUES seldom give."""

_BLOCK = 256
_NEAR, _APART = 16, 0.3
"""How far from such a multiple at most, and how much rarer each further step is."""

_SINGLE = 70
"""Sizes of a longer axis up to here are dealt one by one, too."""

_SHARES = (1 / 6, 1 / 2)
"""How often a longer axis takes one of these, and a residue; else it is a power of two that counts."""

_LONG = 6
"""One in so many cases takes the larger sizes of an axis."""

_CHOICES = 12
"""Cases that are considered for each that is taken; test_drawn.py holds 600 cases of a product to 96 % of all pairs."""

_MOST_ELEMENTS = 1 << 18
"""Elements of all inputs of a case. Larger ones cost more than they can show: what only size triggers is measured
workloads' part."""

_MOST_WORK = 1 << 23
"""The product of all axes, which for a product is how many multiplications the reference does."""

_TRIES = 24
"""For a class that no case is in yet."""

_MOST_PACKED = 1 << 28
"""The product of all axes past which no shape is tried: n and block of the largest that a constraint asks for, 16384
each, are within."""

_FAR_SIZES = (1 << 16) + 1, (1 << 16) + (1 << 14)
"""Between these is an axis of a far case: 16 bits do not hold it, nor does a grid's second axis."""
_FAR_ELEMENTS, _FAR_WORK = 1 << 22, 1 << 26
"""As _MOST_ELEMENTS and _MOST_WORK, of far cases."""
_LARGEST_ELEMENTS = (1 << 25) + (1 << 10)
"""The same of the case with the largest size: two rows of the largest K, and what multiplies them."""
_FEW, _MORE = (2, 5), (9, 40)
"""The sizes of the other axes of far cases."""
_HALVED = 6
"""How often the largest size is halved, where constraints or the format admit none near it."""
_SUMMED = "constant"
"""The family whose sums are the largest."""

_NEAR_SHARE = 0.25
"""How often the second set of data is the first with some elements changed: a kernel that knows its data again by a few
of them gives what it gave before."""

_FACTORS = tuple(1 << power for power in range(1, 16))
_THIRDS = tuple(3 * factor for factor in _FACTORS)

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
    salts: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
    """Of each of its two sets of data: what all of some inputs is, by their names; see salts."""
    near: bool = False
    """The second set of data is the first with some elements changed."""
    alone: bool = False
    """There is one set of data only: the case is large."""

    def __str__(self) -> str:
        shape = ", ".join(f"{axis}={size}" for axis, size in self.axes.items())
        return f"{shape} ({self.family}, {self.layout}, {self.threads} thread{'s' * (self.threads > 1)})"


def edge_of(number: int) -> Edge:
    """Which end of the arrays lies at a page that traps in the case of that number."""
    return "start" if number % 2 else "end"


class _Deck(Generic[T]):
    """Deals the members of a sequence in random order, each as often as the others."""

    def __init__(self, members: Sequence[T], rng: Random) -> None:
        self.members, self._rng = members, rng
        self._left: list[int] = []

    def look(self) -> int:
        """The place of a member that may be dealt next."""
        if not self._left:
            self._left = list(range(len(self.members)))
        return self._rng.choice(self._left)

    def take(self, place: int) -> T:
        """Deal the member of that place."""
        self._left.remove(place)
        return self.members[place]

    def deal(self) -> T:
        return self.take(self.look())


@dataclass(frozen=True, slots=True)
class _Size:
    """A size that may be dealt, and what that takes out of which deck."""

    size: int
    deck: _Deck[int]
    place: int


class _Axis:
    """Sizes of one axis."""

    def __init__(self, sizes: Sizes, rng: Random) -> None:
        self._sizes, self._rng = sizes, rng
        # A short axis takes each of its sizes equally often, a longer one each residue.
        self._short = sizes.usual <= RESIDUES
        self._deck = _Deck(range(1, sizes.usual + 1) if self._short else range(RESIDUES), rng)
        self._often = _Deck(sizes.often, rng)
        self._powers = _Deck(() if self._short else _POWERS, rng)
        self._single = _Deck(() if self._short else range(1, _SINGLE + 1), rng)

    def look(self, *, long: bool) -> _Size:
        """A size that may be dealt next."""
        sizes = self._sizes
        if sizes.often and self._rng.random() < 0.5:
            place = self._often.look()
            return _Size(sizes.often[place], self._often, place)
        place = self._deck.look()
        if self._short:
            return _Size(self._longer() if long else self._deck.members[place], self._deck, place)
        share = self._rng.random()
        if share < _SHARES[0] and not long:
            place = self._single.look()
            return _Size(self._single.members[place], self._single, place)
        # In half of the cases as likely under the geometric mean of the range as over it, so short ones are not rare.
        most = sizes.most if long else sizes.usual
        rough = self._rng.randint(1, most) if self._rng.random() < 0.5 else int(exp(self._rng.uniform(0, log(most))))
        if share < sum(_SHARES):
            return _Size(rough // RESIDUES * RESIDUES + self._deck.members[place] or RESIDUES, self._deck, place)
        # Whole vectors and blocks, which are rare among residues, and the fast way of most kernels.
        place = self._powers.look()
        return _Size(self._multiple(self._powers.members[place], rough), self._powers, place)

    def _longer(self) -> int:
        """A size of a short axis past those that are usual: any, or whole blocks of rows, or near them."""
        rough = self._rng.randint(self._sizes.usual, self._sizes.most)
        return rough if self._rng.random() < 0.5 else self._multiple(self._rng.choice(_POWERS[5:]), rough)

    def _multiple(self, power: int, rough: int) -> int:
        """An odd multiple of a power of two; see _POWERS."""
        if 0 < power < _BLOCK:
            return power * (rough // power | 1)
        block = 1 << self._rng.randrange(_BLOCK.bit_length() - 1, self._sizes.most.bit_length())
        apart = 0 if power else int(self._rng.expovariate(_APART) + 1) * self._rng.choice((-1, 1))
        return block * (rough // block | 1) + max(-_NEAR, min(_NEAR, apart))


class Drawer:
    """Draws cases of one op for variants of the same key, constraints and dense arrays.

    `cores` is the thread count called "all"; `threaded`: the device works with the host's threads.
    """

    def __init__(self, op: Op, variant: Variant, *, cores: int, threaded: bool, seed: int) -> None:
        self._op, self._variant = op, variant
        mark = sha256(repr((op.name, variant.key, variant.constraints, sorted(variant.dense))).encode()).hexdigest()
        self._rng = Random(f"{seed} {mark}")  # quicker than NumPy's for one number at a time
        self._axes = {axis: _Axis(op.sizes.get(axis, Sizes()), self._rng) for axis in op.axes}
        self._families = _Deck(op.input_families, self._rng)
        self._threads = _Deck(tuple(dict.fromkeys((*THREADS, cores))) if threaded else (cores,), self._rng)
        self._ragged = [tensor for tensor in op.inputs if tensor.strided_rows and tensor.name not in variant.dense]
        layouts = LAYOUTS if self._ragged else LAYOUTS[:-1]
        self._layouts = _Deck((*layouts, *(each for each in _OFF if each in layouts)), self._rng)
        self._arrays = [*(tensor for tensor in op.inputs if tensor.axes), *op.outputs]
        self._addresses = {
            tensor.name: _Deck(range(0, _LINE, self._step(tensor)), self._rng) for tensor in self._arrays
        }
        self._one_off = _Deck([name for name, deck in self._addresses.items() if len(deck.members) > 1], self._rng)
        self._strides = {tensor.name: _Deck(range(_LINE), self._rng) for tensor in self._ragged}
        self._far = {tensor.name: _Deck(range(_FAR_OFTEN), self._rng) for tensor in self._ragged}
        self._salts = {tensor.name: _Deck(tuple(kinds(tensor)), self._rng) for tensor in op.inputs}
        self.tally = CoverageTally(factors(op, self._threads.members, layouts))
        self._dealt = 0
        self.refused: set[str] = set()
        """Classes that the constraints do not admit, as far as was tried."""
        self._number = 0

    def draw(self, count: int, corners: Sequence[Workload] = ()) -> list[Drawn]:
        """The corners, `count` cases beside them, and more for classes that none of these is in."""
        cases = [case for corner in corners if (case := self._corner(corner)) is not None]
        cases += [case for _ in range(count) if (case := self._next()) is not None]
        for factor, found in self.tally.factors.items():
            for wanted in found:
                if wanted not in self.tally.singles:
                    case = self._in_class(factor, wanted)
                    if case is None:
                        self.refused.add(wanted)
                    else:
                        cases.append(case)
        return cases

    def far(self) -> list[Drawn]:
        """Cases in which one axis is far larger than the others; none of an op with one axis, or where the constraints
        admit none."""
        if len(self._axes) < 2:
            return []
        found = [self._far_case(axis, span) for axis in self._axes for span in (_FEW, _MORE)]
        found += [self._largest_case(axis) for axis in self._axes if self._op.sizes.get(axis, Sizes()).largest]
        return [case for case in found if case is not None]

    def _far_case(self, axis: str, span: tuple[int, int]) -> Drawn | None:
        axes = {each: self._rng.randint(*span) for each in self._axes} | {axis: self._rng.randint(*_FAR_SIZES)}
        self._shorten(axes, axis, _FAR_ELEMENTS, _FAR_WORK)
        rounded = self._fitting_far(axes)
        if rounded is None or rounded[axis] < _FAR_SIZES[0]:
            return None
        # Whole blocks of a format may be many elements: one such case is enough.
        if self._elements(rounded) > (_LARGEST_ELEMENTS if span == _FEW else _FAR_ELEMENTS):
            return None
        return self._alone(rounded, self._families.deal())

    def _largest_case(self, axis: str) -> Drawn | None:
        """Two of the first other axis, one of the rest, and the largest size, or the next less that is admitted."""
        first, *rest = (each for each in self._axes if each != axis)
        family = _SUMMED if _SUMMED in self._op.input_families else self._families.deal()
        for halved in range(_HALVED):
            largest = self._op.sizes[axis].largest >> halved
            for size in dict.fromkeys(largest // factor * factor for factor in (1, *_FACTORS, *_THIRDS)):
                axes = {first: 2, **dict.fromkeys(rest, 1), axis: size}
                rounded = self._fitting_far({each: axes[each] for each in self._axes})
                if rounded is not None and rounded[axis] == size and self._elements(rounded) <= _LARGEST_ELEMENTS:
                    return self._alone(rounded, family)
        return None

    def _fitting_far(self, axes: Axes) -> dict[str, int] | None:
        # To encode what is large takes long: what the format refuses is then left out.
        return fitting(self._op, self._variant, axes, encoded=self._op.holds is not None)

    def _alone(self, axes: dict[str, int], family: str) -> Drawn:
        layout, threads = self._layouts.deal(), self._threads.deal()
        placement = self._placed(layout, axes)
        return self._taken(
            Drawn(self._number, axes, family, threads, layout, placement, self._seed(), ({}, {}), alone=True)
        )

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
        return self._taken(
            Drawn(self._number, axes, corner.family, self._threads.deal(), layout, placement, self._seed())
        )

    def _next(self) -> Drawn | None:
        """The next case; None where its shape, and what is near it, is not admitted."""
        self._dealt += 1
        long = self._rng.choice(list(self._axes)) if self._dealt % _LONG == 0 else ""
        decks = (self._families, self._threads, self._layouts)
        best: tuple[int, dict[str, int], dict[str, _Size], tuple[int, int, int]] | None = None
        for _ in range(_CHOICES):
            family, threads, layout = (deck.look() for deck in decks)
            looked = {axis: each.look(long=axis == long) for axis, each in self._axes.items()}
            axes = self._shape({axis: each.size for axis, each in looked.items()}, long)
            found = classes(
                self._op,
                axes,
                self._families.members[family],
                self._threads.members[threads],
                self._layouts.members[layout],
            )
            new = self.tally.new(found)
            if best is None or new > best[0]:
                best = new, axes, looked, (family, threads, layout)
        assert best is not None
        for each in best[2].values():
            each.deck.take(each.place)
        family, threads, layout = best[3]
        return self._made(best[1], self._families.take(family), self._threads.take(threads), self._layouts.take(layout))

    def _in_class(self, factor: str, wanted: str) -> Drawn | None:
        """A case of that class, or None if none of many tries gives one: constraints round it away."""
        for _ in range(_TRIES):
            family = wanted.removesuffix(" values") if factor == "family" else self._families.deal()
            layout = wanted if factor == "layout" else self._layouts.deal()
            threads = int(wanted.split(maxsplit=1)[0]) if factor == "threads" else self._threads.deal()
            axes = {axis: each.look(long=False).size for axis, each in self._axes.items()}
            if factor in axes:
                sizes = self._op.sizes.get(factor, Sizes())
                fit = [size for size in range(1, 4 * RESIDUES + 1) if axis_class(factor, size, sizes) == wanted]
                axes[factor] = self._rng.choice(fit)
            rounded = fitting(self._op, self._variant, self._shape(axes, factor))
            if rounded is not None and classes(self._op, rounded, family, threads, layout)[factor] == wanted:
                return self._made(rounded, family, threads, layout)
        return None

    def _made(self, axes: Axes, family: str, threads: int, layout: str) -> Drawn | None:
        rounded = fitting(self._op, self._variant, axes)
        if rounded is None:
            return None
        placement, salts = self._placed(layout, rounded), (self._dealt_salts(), self._dealt_salts())
        near = self._rng.random() < _NEAR_SHARE
        return self._taken(Drawn(self._number, rounded, family, threads, layout, placement, self._seed(), salts, near))

    def _taken(self, case: Drawn) -> Drawn:
        self._number += 1
        self.tally.add(self.classes(case))
        return case

    def classes(self, case: Drawn) -> dict[str, str]:
        """Which class of each factor a case is in."""
        return classes(self._op, case.axes, case.family, case.threads, case.layout)

    def _seed(self) -> int:
        return self._rng.getrandbits(62)

    def _shape(self, axes: dict[str, int], kept: str) -> dict[str, int]:
        """The axes, shortened where they are too much, the axis `kept` last, and rounded to the constraints."""
        self._shorten(axes, kept, _MOST_ELEMENTS, _MOST_WORK)
        return fitting(self._op, self._variant, axes, encoded=False) or axes

    def _shorten(self, axes: dict[str, int], kept: str, elements: int, work: int) -> None:
        while self._too_much(axes, elements, work):
            rest = [axis for axis in axes if axis != kept and axes[axis] > 1] or list(axes)
            largest = max(rest, key=lambda axis: axes[axis])
            # What many powers of two divide stays so.
            odd = self._rng.randrange(2) if axes[largest] % (2 * _BLOCK) else 0
            axes[largest] = max(1, axes[largest] // 2 + odd)

    def _too_much(self, axes: Axes, elements: int, work: int) -> bool:
        # With two axes the product is no more than the elements of a matrix, or, of blocks, no work at all.
        return self._elements(axes) > elements or (len(axes) > 2 and prod(axes.values()) > work)

    def _elements(self, axes: Axes) -> int:
        return sum(prod(axes.get(axis, 1) for axis in tensor.axes) for tensor in self._arrays)

    def _placed(self, layout: str, axes: Axes) -> Placement:
        """Where arrays lie: each array takes every address modulo _LINE, and every distance of its rows, equally
        often."""
        rng = self._rng
        if layout == "aligned" or (layout == "one array off" and not self._one_off.members):
            return Placement()
        if layout == "one array off":
            name = self._one_off.deal()
            return Placement({name: self._addresses[name].deal() or self._addresses[name].deal()}, flush=False)
        # What lies flush begins where its size has it, so nothing is dealt for it.
        flush = bool(edge_of(self._number) == "end" and rng.random() < _FLUSH)
        offsets = {name: rng.randrange(_LINE) if flush else deck.deal() for name, deck in self._addresses.items()}
        gaps = {tensor.name: self._gap(tensor, axes) for tensor in self._ragged if layout == "ragged rows"}
        return Placement(offsets, gaps, flush=flush)

    def _dealt_salts(self) -> dict[str, str]:
        often = min(_MOST_SALTED, _SALTED / len(self._salts))
        return {name: deck.deal() for name, deck in self._salts.items() if self._rng.random() < often}

    def _gap(self, tensor: Tensor, axes: Axes) -> int:
        """Bytes: far; a few odd elements, a vector, a cache line, or many; or as many as make the distance of rows what
        is dealt."""
        itemsize = _itemsize(tensor, self._variant)
        row = axes[tensor.axes[-1]]
        rows = prod(axes[axis] for axis in tensor.axes[:-1])
        far = _FAR + self._rng.randrange(_LINE)
        if row < _FAR and rows > 1 and itemsize * far * rows <= _MOST_FAR and not self._far[tensor.name].deal():
            return itemsize * (far - row)
        if self._rng.random() < _NAMED_GAP:
            # The last is up to the next power of two.
            return itemsize * self._rng.choice(
                [1, 1, 1, 2, 3, 5, 7, 8, 16, 32, 64, 257, *3 * [(1 << row.bit_length()) - row]]
            )
        least = (self._strides[tensor.name].deal() - row) % _LINE
        return itemsize * (least + _LINE * self._rng.randrange(2) or _LINE)

    def _step(self, tensor: Tensor) -> int:
        """Bytes between two addresses that an array may have."""
        return min(_LINE, max(_itemsize(tensor, self._variant), self._variant.alignment))


def fitting(op: Op, variant: Variant, axes: Axes, *, encoded: bool = True) -> dict[str, int] | None:
    """The axes, or near ones that the variant's constraints and, if `encoded`, its format admit; None where none are
    found.

    Those that differ little are tried first, and as few axes as possible change.
    """
    axes = _bounded(variant, axes)
    for candidate in chain((axes,), _near(axes)):
        # Whether a format admits it may be found by packing it, which no large one is worth.
        if prod(candidate.values()) <= _MOST_PACKED and _admitted(op, variant, candidate, encoded):
            return _restored(op, variant, axes, candidate, encoded)
    return None


def _near(axes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes near these: all larger by as much, all or one rounded up to a multiple, one much larger or smaller."""
    for power in _FACTORS:
        yield {axis: size + power for axis, size in axes.items()}
        rounded = {axis: -(-size // power) * power for axis, size in axes.items()}
        yield rounded
        yield from ({**axes, axis: size} for axis, size in rounded.items())
    for power in _FACTORS:
        for axis in axes:
            yield from ({**axes, axis: size} for size in (axes[axis] * power, max(1, axes[axis] // power), power))


def _bounded(variant: Variant, axes: Axes) -> dict[str, int]:
    """The axes within the limits that say what they want, sizes spread over what is left of the range."""
    found = dict(axes)
    for limit in variant.constraints:
        if isinstance(limit, MaxSize) and limit.size > 0:
            found[limit.axis] = 1 + (found[limit.axis] - 1) % limit.size
    for limit in variant.constraints:
        if isinstance(limit, MinSize) and found[limit.axis] < limit.size:
            found[limit.axis] += limit.size
    for limit in variant.constraints:
        if isinstance(limit, MultipleOf):
            found[limit.axis] = -(-found[limit.axis] // limit.factor) * limit.factor
    return found


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
    if op.holds is not None:
        return op.holds(axes, variant.key.format)
    try:
        op.encode(op.generate(axes, op.input_families[0], np.random.default_rng(0)), axes, variant.key.format)
    except InvalidArgumentError:
        return False
    return True


def _itemsize(tensor: Tensor, variant: Variant) -> int:
    return named_dtype(variant.key.dtype if tensor.dtype == "key" else tensor.dtype).itemsize
