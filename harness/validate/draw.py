"""Test cases drawn at random, so that a fault triggered by a shape, layout, thread count or kind of value can show in
every Record.

Sizes of an axis: in half of the cases every residue modulo RESIDUES occurs equally often (a Latin hypercube: shuffled
decks, reshuffled when empty). In a third, every power of two is the greatest one that divides the size. The other cases
take every size up to _SINGLE. Families, thread counts, layouts, addresses of arrays modulo a cache line, row strides,
and kinds of whole inputs (see salts) are dealt in the same way.

Combinations are steered: of several candidates for the next case, the one with most new pairs of classes (see coverage)
is taken, so all pairs occur early (AETG: Cohen, Dalal, Fredman, Patton, "The AETG system", IEEE Transactions on
Software Engineering 23, 1997).

Shapes that the constraints of a kernel or its format refuse are rounded to admitted ones, and never dropped.

Further cases: each axis of several is far larger than usual in two cases, once with small and once with larger sizes of
the others. If the op declares a largest size of an axis, one case has it. A float32 sum over the largest K is incorrect
past 2^24, and a kernel may take another path for several rows.
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
from tritmark.harness.spec import Axes, MaxSize, MinSize, MultipleOf, Op, Sizes, Tensor, Variant, Workload, axis_size
from tritmark.harness.validate.coverage import CoverageTally, axis_class, classes, factors
from tritmark.harness.validate.placement import Placement, named
from tritmark.harness.validate.salts import kinds
from tritmark.harness.worker.shared import Edge

RESIDUES = 128
"""Number of residues of an axis that are dealt equally often: twice the widest vector of any instruction set, in
bytes."""

THREADS = (1, 2, 3, 4, 5, 6, 7, 8)
"""Thread counts beside the number of cores."""

LAYOUTS = ("aligned", "one array off", "every array off", "ragged rows")
"""Placement of arrays: at multiples of the alignment, one of them elsewhere, each at its own offset, and with gaps
between rows."""

_OFF = ("every array off", "ragged rows")
"""Layouts that are dealt twice as often as the others: each array has its own address."""

_LINE = 64
"""Modulus of addresses in bytes, and of row strides in elements: a cache line, and the widest vector."""

_FLUSH = 0.5
"""Share of the cases with arrays before a guard page in which the arrays end exactly there, if each has its own
address."""

_NAMED_GAP = 0.25
"""Share of arrays whose row gap is a listed number of elements, and not one that is dealt."""

_FAR, _MOST_FAR, _FAR_OFTEN = 1 << 16, 1 << 23, 16
"""For far rows: least row stride in elements, which 16 bits cannot hold; greatest span of such an array in bytes; and
their share, one in so many arrays with row gaps."""

_SALTED, _MOST_SALTED = 0.6, 0.3
"""Share of the inputs of a set of data that are wholly of one kind, and the greatest share for any one input: some
faults need several ordinary inputs of a family."""

_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 0)
"""Greatest power of two that divides an axis. 256 means 256 or more, and 0 means sizes near multiples of those:
kernels that work in blocks of hundreds or thousands have tails that residues modulo RESIDUES seldom reach."""

_BLOCK = 256
_NEAR, _APART = 16, 0.3
"""Greatest distance from such a multiple, and the decrease in probability with each step."""

_SINGLE = 70
"""Sizes of a longer axis up to this one are also dealt one by one."""

_SHARES = (1 / 6, 1 / 2)
"""Share of single sizes and of residues for a longer axis; the rest are powers of two."""

_LONG = 6
"""One in this many cases has a larger size of an axis."""

_CHOICES = 12
"""Candidates for each case that is taken. test_drawn.py requires that 600 cases of a product reach 96 % of all
pairs."""

_MOST_ELEMENTS = 1 << 18
"""Elements of all inputs of a case. Larger cases cost more than they can show; measured workloads cover faults that
depend on size alone."""

_MOST_WORK = 1 << 23
"""Product of all axes: for a matrix product, the number of multiplications of the reference."""

_TRIES = 24
"""Tries to reach a class without a case."""

_MOST_PACKED = 1 << 28
"""Product of all axes above which no shape is tried. The largest n and block that a constraint requires, 16384 each,
are below it."""

_FAR_SIZES = (1 << 16) + 1, (1 << 16) + (1 << 14)
"""Range of the large axis of a far case: 16 bits cannot hold it, nor can the second axis of a grid."""
_FAR_ELEMENTS, _FAR_WORK = 1 << 22, 1 << 26
"""_MOST_ELEMENTS and _MOST_WORK for far cases."""
_LARGEST_ELEMENTS = (1 << 25) + (1 << 10)
"""The same for the case with the largest size: two rows of the largest K, and the other factor."""
_FEW, _MORE = (2, 5), (9, 40)
"""Ranges of the other axes of far cases."""
_HALVED = 6
"""Most halvings of the largest size, if constraints or the format admit no size near it."""
_SUMMED = "constant"
"""The family whose sums are the largest."""

_NEAR_SHARE = 0.25
"""Share of cases in which the second set of data is the first with some elements changed: a kernel that recognizes its
data by a few elements returns its old result."""

_FACTORS = tuple(1 << power for power in range(1, 16))
_THIRDS = tuple(3 * factor for factor in _FACTORS)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Drawn:
    """One test case."""

    number: int
    """Position in the draw, from 0."""
    axes: Mapping[str, int]
    family: str
    threads: int
    layout: str
    placement: Placement
    seed: int
    """Seed of its data and of its other random choices."""
    salts: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
    """For each of its two sets of data: the kind of some inputs, by name; see salts."""
    near: bool = False
    """The second set of data is the first with some elements changed."""
    alone: bool = False
    """Whether there is only one set of data, because the case is large."""

    def __str__(self) -> str:
        shape = ", ".join(f"{axis}={size}" for axis, size in self.axes.items())
        return f"{shape} ({self.family}, {self.layout}, {self.threads} thread{'s' * (self.threads > 1)})"


def edge_of(number: int) -> Edge:
    """The end of the arrays that lies at a guard page in the case of that number."""
    return "start" if number % 2 else "end"


class _Deck(Generic[T]):
    """Deals the members of a sequence in random order, all equally often."""

    def __init__(self, members: Sequence[T], rng: Random) -> None:
        self.members, self._rng = members, rng
        self._left: list[int] = []

    def look(self) -> int:
        """Position of a member that may be dealt next."""
        if not self._left:
            self._left = list(range(len(self.members)))
        return self._rng.choice(self._left)

    def take(self, place: int) -> T:
        """Deal the member at that position."""
        self._left.remove(place)
        return self.members[place]

    def deal(self) -> T:
        return self.take(self.look())


@dataclass(frozen=True, slots=True)
class _Size:
    """A size that may be dealt, and the deck and position that it comes from."""

    size: int
    deck: _Deck[int]
    place: int


class _Axis:
    """Sizes of one axis."""

    def __init__(self, sizes: Sizes, rng: Random) -> None:
        self._sizes, self._rng = sizes, rng
        # A short axis takes each size equally often, a longer one each residue.
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
        # In half of the cases the size is below the geometric mean of the range with probability 1/2, so short ones are
        # not rare.
        most = sizes.most if long else sizes.usual
        rough = self._rng.randint(1, most) if self._rng.random() < 0.5 else int(exp(self._rng.uniform(0, log(most))))
        if share < sum(_SHARES):
            return _Size(rough // RESIDUES * RESIDUES + self._deck.members[place] or RESIDUES, self._deck, place)
        # Whole vectors and blocks: rare among residues, and the fast path of most kernels.
        place = self._powers.look()
        return _Size(self._multiple(self._powers.members[place], rough), self._powers, place)

    def _longer(self) -> int:
        """A size of a short axis above the usual ones: any size, whole blocks of rows, or a size near them."""
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

    `cores`: the thread count called "all". `threaded`: whether the device works with the host's threads.
    """

    def __init__(self, op: Op, variant: Variant, *, cores: int, threaded: bool, seed: int) -> None:
        self._op, self._variant = op, variant
        mark = sha256(repr((op.name, variant.key, variant.constraints, sorted(variant.dense))).encode()).hexdigest()
        self._rng = Random(f"{seed} {mark}")  # faster than NumPy's for single numbers
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
        self._salts = {tensor.name: _Deck(tuple(kinds(tensor)), self._rng) for tensor in op.inputs if kinds(tensor)}
        self.tally = CoverageTally(factors(op, self._threads.members, layouts))
        self._dealt = 0
        self.refused: set[str] = set()
        """Classes that the constraints do not admit, as far as tried."""
        self._number = 0

    def draw(self, count: int, corners: Sequence[Workload] = ()) -> list[Drawn]:
        """The corners, `count` further cases, and one case for each class that none of them is in."""
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
        """Cases in which one axis is far larger than the others. None for an op with one axis, or if the constraints
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
        # Whole blocks of a format may have many elements: one such case is enough.
        if self._elements(rounded) > (_LARGEST_ELEMENTS if span == _FEW else _FAR_ELEMENTS):
            return None
        return self._alone(rounded, self._families.deal())

    def _largest_case(self, axis: str) -> Drawn | None:
        """Size 2 for the first other axis, 1 for the rest, and the largest admitted size."""
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
        # Encoding a large case takes long, so the format is checked only if the op can tell without.
        return fitting(self._op, self._variant, axes, encoded=self._op.holds is not None)

    def _alone(self, axes: dict[str, int], family: str) -> Drawn:
        layout, threads = self._layouts.deal(), self._threads.deal()
        placement = self._placed(layout, axes)
        return self._taken(
            Drawn(self._number, axes, family, threads, layout, placement, self._seed(), ({}, {}), alone=True)
        )

    @property
    def missing(self) -> list[str]:
        """Classes that the contract and the constraints admit, as far as tried, without a case."""
        return [each for each in self.tally.missing if each not in self.refused]

    def _corner(self, corner: Workload) -> Drawn | None:
        """A workload of a suite as a case; None if no shape near it is admitted."""
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
        """The next case; None if neither its shape nor one near it is admitted."""
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
        """A case of that class; None if many tries give none, because constraints round it away."""
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
        """The class of each factor that a case is in."""
        return classes(self._op, case.axes, case.family, case.threads, case.layout)

    def _seed(self) -> int:
        return self._rng.getrandbits(62)

    def _shape(self, axes: dict[str, int], kept: str) -> dict[str, int]:
        """The axes, shortened if they exceed the limits, the axis `kept` last, and rounded to the constraints."""
        self._shorten(axes, kept, _MOST_ELEMENTS, _MOST_WORK)
        return fitting(self._op, self._variant, axes, encoded=False) or axes

    def _shorten(self, axes: dict[str, int], kept: str, elements: int, work: int) -> None:
        while self._too_much(axes, elements, work):
            rest = [axis for axis in axes if axis != kept and axes[axis] > 1] or list(axes)
            largest = max(rest, key=lambda axis: axes[axis])
            # A size with many factors of two keeps them.
            odd = self._rng.randrange(2) if axes[largest] % (2 * _BLOCK) else 0
            axes[largest] = max(1, axes[largest] // 2 + odd)

    def _too_much(self, axes: Axes, elements: int, work: int) -> bool:
        # With two axes, the product is at most the elements of a matrix; of blocks it is no work at all.
        return self._elements(axes) > elements or (len(axes) > 2 and prod(axes.values()) > work)

    def _elements(self, axes: Axes) -> int:
        return sum(prod(axes.get(axis, 1) for axis in tensor.axes) for tensor in self._arrays)

    def _placed(self, layout: str, axes: Axes) -> Placement:
        """Placement of the arrays. Each array takes every address modulo _LINE, and every row stride, equally often."""
        rng = self._rng
        if layout == "aligned" or (layout == "one array off" and not self._one_off.members):
            return Placement()
        if layout == "one array off":
            name = self._one_off.deal()
            return Placement({name: self._addresses[name].deal() or self._addresses[name].deal()}, flush=False)
        # The start of a flush array follows from its size, so its address is not dealt.
        flush = bool(edge_of(self._number) == "end" and rng.random() < _FLUSH)
        offsets = {name: rng.randrange(_LINE) if flush else deck.deal() for name, deck in self._addresses.items()}
        gaps = {tensor.name: self._gap(tensor, axes) for tensor in self._ragged if layout == "ragged rows"}
        return Placement(offsets, gaps, flush=flush)

    def _dealt_salts(self) -> dict[str, str]:
        often = min(_MOST_SALTED, _SALTED / len(self._salts))
        return {name: deck.deal() for name, deck in self._salts.items() if self._rng.random() < often}

    def _gap(self, tensor: Tensor, axes: Axes) -> int:
        """Row gap in bytes: far; a few odd elements, a vector, a cache line or many; or a gap that gives the dealt row
        stride."""
        itemsize = _itemsize(tensor, self._variant)
        row = axis_size(tensor.axes[-1], axes)
        rows = prod(axis_size(axis, axes) for axis in tensor.axes[:-1])
        far = _FAR + self._rng.randrange(_LINE)
        if row < _FAR and rows > 1 and itemsize * far * rows <= _MOST_FAR and not self._far[tensor.name].deal():
            return itemsize * (far - row)
        if self._rng.random() < _NAMED_GAP:
            # The last one goes up to the next power of two.
            return itemsize * self._rng.choice(
                [1, 1, 1, 2, 3, 5, 7, 8, 16, 32, 64, 257, *3 * [(1 << row.bit_length()) - row]]
            )
        least = (self._strides[tensor.name].deal() - row) % _LINE
        return itemsize * (least + _LINE * self._rng.randrange(2) or _LINE)

    def _step(self, tensor: Tensor) -> int:
        """Distance in bytes of two possible addresses of an array."""
        return min(_LINE, max(_itemsize(tensor, self._variant), self._variant.alignment))


def fitting(op: Op, variant: Variant, axes: Axes, *, encoded: bool = True) -> dict[str, int] | None:
    """The axes, or near ones that the constraints of the variant and, if `encoded`, its format admit; None if there are
    none.

    Small differences are tried first, and as few axes as possible change.
    """
    axes = _bounded(variant, axes)
    for candidate in chain((axes,), _near(axes)):
        # The check of a format may pack the data, which takes too long for a large one.
        if prod(candidate.values()) <= _MOST_PACKED and _admitted(op, variant, candidate, encoded):
            return _restored(op, variant, axes, candidate, encoded)
    return None


def _near(axes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Near sizes: all increased equally; all or one rounded up to a multiple; one much larger or smaller; one a
    multiple of another."""
    for power in _FACTORS:
        yield {axis: size + power for axis, size in axes.items()}
        rounded = {axis: -(-size // power) * power for axis, size in axes.items()}
        yield rounded
        yield from ({**axes, axis: size} for axis, size in rounded.items())
    for power in _FACTORS:
        for axis in axes:
            yield from ({**axes, axis: size} for size in (axes[axis] * power, max(1, axes[axis] // power), power))
    # One axis a multiple of another, which keeps its size or is a power of two.
    for axis, size in axes.items():
        for factor in (size, *_FACTORS):
            yield from (
                {**axes, axis: factor, other: -(-axes[other] // factor) * factor} for other in axes if other != axis
            )


def _bounded(variant: Variant, axes: Axes) -> dict[str, int]:
    """The axes within the size limits of the constraints, with sizes spread over the remaining range."""
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
    """Restore as many of the original axes as is admitted."""
    for axis, size in axes.items():
        candidate = {**rounded, axis: size}
        if candidate != rounded and _admitted(op, variant, candidate, encoded):
            rounded = candidate
    return rounded


def _admitted(op: Op, variant: Variant, axes: Axes, encoded: bool) -> bool:
    if any(constraint.refusal(axes) is not None for constraint in variant.constraints):
        return False
    if not encoded:
        return True
    if op.holds is not None:
        return op.holds(axes, variant.key.format)
    if variant.key.format == "none":
        return True
    try:
        op.encode(op.generate(axes, op.input_families[0], np.random.default_rng(0)), axes, variant.key.format)
    except InvalidArgumentError:
        return False
    return True


def _itemsize(tensor: Tensor, variant: Variant) -> int:
    return named_dtype(variant.key.dtype if tensor.dtype == "key" else tensor.dtype).itemsize
