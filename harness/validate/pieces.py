"""Small parts of the inputs that are exchanged before every sample, with the outputs that follow.

A workload has two sets of data. Where pieces of an op are independent (`Op.independent_axis`), each may come from
either set, and only the outputs of that piece change: 2^MOST mixtures that no kernel has seen, for a few microseconds
each. Half of the pieces differ only in a short run of elements at any place, so a kernel that recognizes its data by
one cache line of each unit does not notice. Where every output depends on every input, one stretch of elements at a
time comes from the other set. A kernel that reuses results after comparing a few elements leaves incorrect outputs.

The process of the candidate knows where pieces are; the parent keeps the expected outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import TritmarkError
from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Values
from tritmark.harness.validate.bitwise import same
from tritmark.harness.validate.cases import is_array
from tritmark.harness.validate.compare import BrokenReferenceError, Expected, expectations

MOST = 16
"""Number of pieces: 2^16 mixtures are more than there are samples, and the parent computes each piece once for either
data."""

_PART = 1024
"""A piece is at most this part of its axis, or one unit. Few bytes that were just written do not help a cold call. A
unit of a product's weights may be larger: 64 rows of 2560."""

_RUNS_TRIED = 8
"""Draws of a run until the data differ in it: codes are often equal in both."""

_STRETCHES = 3
_STRETCH = 64
_WHOLE = 1 << 22
"""Number of elements from which there are no stretches: each needs the reference over all elements."""


@dataclass(frozen=True, slots=True)
class StoredPart:
    """Elements [begin, end) of a flat encoded input. `held`: for either data, these elements when their piece is
    exchanged over it."""

    name: str
    begin: int
    end: int
    held: tuple[npt.NDArray[Any], ...]

    def content(self, cases: Sequence[Arrays], case: int, *, exchanged: bool) -> npt.NDArray[Any]:
        """The elements over the data `case`. `cases` are the encoded inputs."""
        return self.held[case] if exchanged else _elements(cases[case][self.name], self.begin, self.end)


@dataclass(frozen=True, slots=True)
class Piece:
    """Place of a piece: its parts of the inputs; for each output, the axis and the part [begin, end) along it. Axis -1:
    all of the output may change."""

    inputs: tuple[StoredPart, ...]
    outputs: Mapping[str, tuple[int, int, int]]

    def of(self, name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The piece's part of an output: a view."""
        axis, begin, end = self.outputs[name]
        return array if axis < 0 else array[(slice(None),) * axis + (slice(begin, end),)]


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of one workload."""

    each: tuple[Piece, ...] = ()
    together: bool = True
    """Whether any number of pieces may be exchanged together; else one at a time, and only over the first data."""


@dataclass(frozen=True, slots=True)
class Exchangeable:
    """Pieces, and for the parent their expected outputs: `expected[case][piece]` are parts of the outputs if the piece
    comes from the other data and the rest holds the data `case`."""

    pieces: Pieces
    expected: tuple[tuple[tuple[Expected, ...], ...], ...]


NOTHING = Exchangeable(Pieces(), ((), ()))


def exchangeable(
    op: Op,
    key: KernelKey,
    axes: Axes,
    logical: tuple[Arrays, ...],
    encoded: tuple[Arrays, ...],
    rng: np.random.Generator,
) -> Exchangeable:
    """The pieces of a workload with two sets of data that differ only in the contents of arrays. Empty if the op or its
    reference does not accept a single piece."""
    for made in (_pieces, _stretches):
        with suppress(TritmarkError, BrokenReferenceError):
            found = made(op, key, axes, logical, encoded, rng)
            if found is not None:
                return found
    return NOTHING


def _pieces(
    op: Op,
    key: KernelKey,
    axes: Axes,
    logical: tuple[Arrays, ...],
    encoded: tuple[Arrays, ...],
    rng: np.random.Generator,
) -> Exchangeable | None:
    if op.independent_axis is None:
        return None
    axis, unit = op.independent_axis(axes, key)
    units = axes[axis] // unit
    if units < 2:
        return None
    size = unit * max(1, units // _PART)
    # Never the last piece that fits, which may be shorter.
    starts = np.sort(rng.choice(axes[axis] // size, min(MOST, axes[axis] // size), replace=False))
    along = {tensor.name: tensor.axes.index(axis) for tensor in op.inputs if axis in tensor.axes}
    lengths = _lengths(op, key, axes, axis, size, logical[0], along)
    outputs = grown(op, key, axes, axis, size)
    if outputs is None:
        return None
    where = (starts[:, np.newaxis] * size + np.arange(size)).reshape(-1)
    within = {**axes, axis: where.size}
    runs = _runs(logical, where, along, len(starts), rng)
    mixed = [_mixed(logical, case, where, along, len(starts), runs) for case in (0, 1)]
    exchanged = [op.encode(each, within, key.format) for each in mixed]

    places = _places(op, key, (axes, within), lengths, size, starts)
    inputs = [
        tuple(
            StoredPart(name, *whole, tuple(_elements(each[name], *own).copy() for each in exchanged))
            for name, whole, own in one
        )
        for one in places
    ]
    # The places of pieces are not believed: a wrong one would accuse every kernel.
    if any(each.size != part.end - part.begin for piece in inputs for part in piece for each in part.held):
        return None
    for case in (0, 1):
        if not _same_beside(lengths, encoded[case], exchanged[case]):
            return None
        if where.size < axes[axis]:
            alone = op.encode(_cut(logical[case], where, along), within, key.format)
            if not _same_beside(lengths, encoded[case], alone) or not all(
                _same(_elements(alone[name], *own), _elements(encoded[case][name], *whole))
                for name, whole, own in chain.from_iterable(places)
            ):
                return None
        else:
            half = op.encode(_every_second(logical[case], mixed[case], along, size), axes, key.format)
            if not _same_beside((), half, _written(encoded[case], inputs[::2], case)):
                return None
    expected = []
    for each in mixed:
        judged = expectations(op, within, key, op.reference(each, within, key))
        expected.append(
            tuple(tuple(_part(one, *outputs[one.name], nth) for one in judged) for nth in range(len(starts)))
        )
    pieces = []
    for parts, begin in zip(inputs, starts.tolist(), strict=True):
        ends = {name: (at, begin * length, (begin + 1) * length) for name, (at, length) in outputs.items()}
        pieces.append(Piece(parts, ends))
    return Exchangeable(Pieces(tuple(pieces)), tuple(expected))


def _places(
    op: Op, key: KernelKey, axes: tuple[Axes, Axes], lengths: Mapping[str, int], size: int, starts: npt.NDArray[np.intp]
) -> list[list[tuple[str, tuple[int, int], tuple[int, int]]]]:
    """For each piece, the names of inputs with the ranges of its elements in the whole, and among all pieces alone.
    `axes`: those of the whole, and of the pieces."""

    def ranges(axes: Axes, name: str, nth: int) -> Sequence[tuple[int, int]]:
        stored = op.stored_ranges
        found = None if stored is None else stored(axes, key.format, name, nth * size, (nth + 1) * size)
        return found if found is not None else [(nth * lengths[name], (nth + 1) * lengths[name])]

    return [
        [
            (name, *both)
            for name in lengths
            for both in zip(ranges(axes[0], name, start), ranges(axes[1], name, nth), strict=True)
        ]
        for nth, start in enumerate(starts.tolist())
    ]


def _every_second(here: Arrays, mixed: Arrays, along: Mapping[str, int], size: int) -> Arrays:
    """Inputs with every second piece exchanged. `mixed`: all inputs, with all pieces exchanged."""
    made = dict(here)
    for name, axis in along.items():
        second = np.arange(here[name].shape[axis]) // size % 2 == 0
        shape = [-1 if at == axis else 1 for at in range(here[name].ndim)]
        made[name] = np.where(second.reshape(shape), mixed[name], here[name])
    return made


def _written(encoded: Arrays, pieces: Sequence[Sequence[StoredPart]], case: int) -> Arrays:
    """Encoded inputs with pieces exchanged."""
    made = {name: np.array(value, order="C") if is_array(value) else value for name, value in encoded.items()}
    for part in (part for piece in pieces for part in piece):
        made[part.name].reshape(-1)[part.begin : part.end] = part.held[case]
    return made


def _elements(value: Any, begin: int, end: int) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = np.ascontiguousarray(value).reshape(-1)[begin:end]
    return found


def _same(one: Any, two: Any) -> bool:
    """Whether two encoded inputs are equal; arrays, bit for bit."""
    if not (isinstance(one, np.ndarray) and isinstance(two, np.ndarray)):
        return one is two or np.array_equal(one, two)
    return (one.shape, one.dtype) == (two.shape, two.dtype) and same(one, two)


def _same_beside(exchanged: Collection[str], first: Arrays, *others: Arrays) -> bool:
    """Whether all have the same inputs, with equal contents except for those that are `exchanged`."""
    return all(
        other.keys() == first.keys() and all(name in exchanged or _same(first[name], other[name]) for name in first)
        for other in others
    )


def _cut(logical: Arrays, where: npt.NDArray[np.intp], along: Mapping[str, int]) -> Arrays:
    return {name: value.take(where, along[name]) if name in along else value for name, value in logical.items()}


def _runs(
    logical: tuple[Arrays, ...],
    where: npt.NDArray[Any],
    along: Mapping[str, int],
    count: int,
    rng: np.random.Generator,
) -> dict[int, tuple[str, int, int]]:
    """For about half of the pieces, by number: an input, and the flat range of elements in the piece's part that
    changes."""
    found: dict[int, tuple[str, int, int]] = {}
    for nth in range(count):
        if rng.random() < 0.5:
            continue
        name = str(rng.choice(sorted(along)))
        one, two = (_piece_of(each[name].take(where, along[name]), along[name], count, nth) for each in logical)
        for _ in range(_RUNS_TRIED):
            length = int(np.exp(rng.uniform(0, np.log(max(1, one.size // 4)))))
            begin = int(rng.integers(one.size - length + 1))
            if not np.array_equal(one.reshape(-1)[begin : begin + length], two.reshape(-1)[begin : begin + length]):
                found[nth] = name, begin, begin + length
                break
    return found


def _mixed(
    logical: tuple[Arrays, ...],
    case: int,
    where: npt.NDArray[Any],
    along: Mapping[str, int],
    count: int,
    runs: Mapping[int, tuple[str, int, int]],
) -> Arrays:
    """Contents of the pieces when they are exchanged over the data `case`, in sequence."""
    here, other = logical[case], logical[1 - case]
    mixed = {
        name: np.array(other[name].take(where, along[name])) if name in along else value for name, value in here.items()
    }
    for nth, (changed, begin, end) in runs.items():
        for name, axis in along.items():
            part = _piece_of(mixed[name], axis, count, nth)
            kept = _piece_of(here[name].take(where, axis), axis, count, nth).copy()
            if name == changed:
                kept.reshape(-1)[begin:end] = part.reshape(-1)[begin:end]
            part[...] = kept
    return mixed


def _piece_of(array: npt.NDArray[Any], axis: int, count: int, nth: int) -> npt.NDArray[Any]:
    """The nth of `count` equal parts along an axis: a view."""
    length = array.shape[axis] // count
    return array[(slice(None),) * axis + (slice(nth * length, (nth + 1) * length),)]


def grown(op: Op, key: KernelKey, axes: Axes, axis: str, size: int) -> dict[str, tuple[int, int]] | None:
    """For each output, the dimension of the axis and the length along it that belongs to `size` of the axis; None if
    that is not exactly one dimension."""
    one, two = (op.outputs_like({**axes, axis: count * size}, key) for count in (1, 2))
    found: dict[str, tuple[int, int]] = {}
    for name, (shape, _) in one.items():
        longer = [(at, two[name][0][at] - length) for at, length in enumerate(shape) if two[name][0][at] != length]
        if len(longer) != 1:
            return None
        found[name] = longer[0]
    return found


def _lengths(
    op: Op, key: KernelKey, axes: Axes, axis: str, size: int, logical: Arrays, along: Mapping[str, int]
) -> dict[str, int]:
    """Number of elements of each encoded input in a piece of `size`: the difference of two pieces and one, without
    parts that a format stores once."""

    def encoded(length: int) -> Arrays:
        return op.encode(_cut(logical, np.arange(length), along), {**axes, axis: length}, key.format)

    one, two = encoded(size), encoded(2 * size)
    more = {name: two[name].size - value.size for name, value in one.items() if is_array(value)}
    return {name: length for name, length in more.items() if length}


def _part(whole: Expected, axis: int, length: int, nth: int) -> Expected:
    def cut(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array[(slice(None),) * axis + (slice(nth * length, (nth + 1) * length),)]

    values = cut(whole.values)
    exact = values if whole.exact is whole.values else cut(whole.exact)
    return replace(
        whole, values=values, exact=exact, error_bound=None if whole.error_bound is None else cut(whole.error_bound)
    )


def _stretches(
    op: Op,
    key: KernelKey,
    axes: Axes,
    logical: tuple[Arrays, ...],
    encoded: tuple[Arrays, ...],
    rng: np.random.Generator,
) -> Exchangeable:
    """Stretches of one input that kernels take unencoded, element by element."""
    offsets = {tensor.name for tensor in op.inputs if tensor.values is Values.OFFSETS}
    plain = [
        name
        for name, value in encoded[0].items()
        if is_array(value) and name not in offsets
        and name in logical[0]
        and (value.shape, value.dtype) == (logical[0][name].shape, logical[0][name].dtype)
        if value.size > _STRETCH and np.array_equal(value, logical[0][name])
    ]  # fmt: skip
    if not plain or sum(value.size for value in encoded[0].values() if is_array(value)) >= _WHOLE:
        return NOTHING
    name = max(plain, key=lambda each: int(logical[0][each].size))
    total = int(logical[0][name].size)
    longest = max(1, total // _STRETCH)
    pieces, expected = [], []
    outputs = {each.name: (-1, 0, 0) for each in op.outputs}
    for nth, start in enumerate(rng.choice(total - longest, min(_STRETCHES, total - longest), replace=False)):
        length = int(np.exp(rng.uniform(0, np.log(longest)))) if nth else longest
        begin, end = int(start), int(start) + length
        value = logical[0][name].copy()
        value.reshape(-1)[begin:end] = logical[1][name].reshape(-1)[begin:end]
        inputs = {**logical[0], name: value}
        if not _same_beside((name,), encoded[0], op.encode(inputs, axes, key.format)):
            return NOTHING
        expected.append(expectations(op, axes, key, op.reference(inputs, axes, key)))
        pieces.append(Piece((StoredPart(name, begin, end, (value.reshape(-1)[begin:end],)),), outputs))
    return Exchangeable(Pieces(tuple(pieces), together=False), (tuple(expected), ()))
