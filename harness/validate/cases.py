"""The data of one workload: made once, and used to judge every variant.

There are two sets of data, or one if a set has LARGE elements: runs on fresh data are for small workloads, where they
cost nothing. Faults of size (indices past 2**31, growing sums) show in one set. For such a set, PART elements are made
and repeated along the longest axis, because random numbers for all of it would take longer than the rest. The length of
the part is odd, so an index that wraps at a power of two reads other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, StoredMatrix, ToleranceKind, Values, Variant, Workload
from tritmark.harness.validate.compare import BrokenReferenceError, Expected, expectations, is_float
from tritmark.harness.validate.salts import salted
from tritmark.harness.weights import Conventions, TernaryWeights, holders_of, open_weights

LARGE = 1 << 26
"""Number of elements of all inputs together from which there is one set of data."""

PART = 1 << 24

FEW = 16
"""Up to this many elements of all inputs or of all outputs, two sets may give equal outputs by chance. A kernel that
writes one number, or keeps an old result, then passes. test_cases.py computes how rare that is for more elements."""

DRAWS = 16, 256
"""Second sets to try if there are few elements. The least number, unless every element of all outputs differs; and the
greatest, while some output does not differ at all."""


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs of a kernel and its expected outputs."""

    inputs: Mapping[str, Any]
    """Encoded for the key's format. Candidates get copies only."""
    expected: Sequence[Expected]
    logical: Arrays
    """The same inputs in the form that the reference takes."""


class _LazyExpected(Sequence[Expected]):
    """Expected outputs of one set of data, computed on access. Access to one set frees the outputs of the other sets
    that share `held`."""

    def __init__(self, make: Callable[[], tuple[Expected, ...]], held: dict[object, tuple[Expected, ...]]) -> None:
        self._make, self._held = make, held

    def _made(self) -> tuple[Expected, ...]:
        if self not in self._held:
            self._held.clear()
            self._held[self] = self._make()
        return self._held[self]

    def __getitem__(self, at: Any) -> Any:
        return self._made()[at]

    def __iter__(self) -> Iterator[Expected]:
        return iter(self._made())

    def __len__(self) -> int:
        return len(self._made())


@dataclass(frozen=True, slots=True)
class Cases:
    """Two cases of one workload with different data, or one case of a large workload.

    `in_place`: both differ only in the contents of arrays. A kernel that is bound to the memory of the first case must
    also be correct after the data of the second was written there.
    """

    first: Case
    second: Case | None
    in_place: bool


class Material:
    """Inputs of one workload: generated once, and encoded once for each format.

    Two sets of data, fixed by `seed` and the workload. The second has the scalars of the first, if the op can encode
    that. With FEW elements, the second set is the one of DRAWS sets whose outputs, under the last requested key, differ
    most from those of the first.
    """

    def __init__(
        self,
        op: Op,
        workload: Workload,
        seed: int,
        *,
        salts: Sequence[Mapping[str, str] | None] = (None, None),
        near: bool = False,
    ) -> None:
        """`salts`: for each set the kinds of its inputs (see salts.salted); None: no change. `near`: the second set is
        the first with some elements changed, if there are more than FEW."""
        self.op = op
        self.workload = workload
        # The same data for every layout, key and variant of the same shape and family.
        mark = int.from_bytes(sha256(repr(_identity(workload)).encode()).digest()[:8], "little")
        rngs = (np.random.default_rng([seed, mark, nth]) for nth in (0, 1))
        self._logical: tuple[Arrays, ...]
        self._second: Callable[[int], Arrays] | None = None
        if workload.stored is not None:
            self._logical = _with_stored(op, workload, workload.stored, rngs)
        elif _elements(op, workload.axes) >= LARGE:
            self._logical = (_repeated(op, workload, next(rngs)),)
        else:
            first = _generated(op, workload, next(rngs), salts[0])
            scalars = {tensor.name: first[tensor.name] for tensor in op.inputs if not tensor.axes}

            def second(draw: int) -> Arrays:
                rng = np.random.default_rng([seed, mark, 1, draw] if draw else [seed, mark, 1])
                made = {**_generated(op, workload, rng, salts[1]), **scalars}
                return _near(op, first, made, rng) if near and _elements(op, workload.axes) > FEW else made

            self._logical, self._second = (first, second(0)), second
        self._encoded: dict[str, tuple[Mapping[str, Any], ...]] = {}

    @property
    def elements(self) -> int:
        """Elements of one set of inputs."""
        return _elements(self.op, self.workload.axes)

    def suits(self, workload: Workload) -> bool:
        """Whether that workload has the same data: equal op, axes and family. The layout may differ."""
        return _identity(workload) == _identity(self.workload)

    def forget_second(self) -> None:
        """Keep the first set of data only."""
        self._logical, self._second = self._logical[:1], None
        self._encoded = {format: encoded[:1] for format, encoded in self._encoded.items()}

    @property
    def logical(self) -> tuple[Arrays, ...]:
        """Each set of data in the form that the reference takes."""
        return self._logical

    def encoded(self, format: str) -> tuple[Mapping[str, Any], ...]:
        """Each set of data in that format; read-only."""
        if format not in self._encoded:
            encoded = tuple(self.op.encode(logical, self.workload.axes, format) for logical in self._logical)
            for each in encoded:
                for value in each.values():
                    if isinstance(value, np.ndarray):
                        value.setflags(write=False)
            self._encoded[format] = encoded
        return self._encoded[format]

    def cases(self, key: KernelKey, *, by_turns: bool = False) -> Cases:
        """The cases of a key. `by_turns`: expected outputs are computed on access, for one case at a time.

        Raises BrokenReferenceError if the reference cannot be used; with `by_turns` on access.
        """
        self._tell_apart(key)
        encoded = self.encoded(key.format)
        axes = self.workload.axes
        held: dict[object, tuple[Expected, ...]] = {}

        def make(logical: Arrays) -> tuple[Expected, ...]:
            return expectations(self.op, axes, key, self.op.reference(logical, axes, key))

        first, *further = (
            Case(inputs, _LazyExpected(partial(make, logical), held) if by_turns else make(logical), logical)
            for inputs, logical in zip(encoded, self._logical, strict=True)
        )
        return Cases(first, further[0], in_place=_alike(*encoded)) if further else Cases(first, None, in_place=False)

    def _tell_apart(self, key: KernelKey) -> None:
        """With few elements, choose a second set of data whose outputs differ from the first's."""
        outputs = sum(prod(shape) for shape, _ in self.op.outputs_like(self.workload.axes, key).values())
        if self._second is None or min(self.elements, outputs) > FEW:
            return
        made, most, chosen = self._outputs(key, self._logical[0]), (-1, -1), self._logical[1]
        for draw in range(DRAWS[1]):
            logical = self._second(draw)
            differ = [(a != b) for a, b in zip(made, self._outputs(key, logical), strict=True)]
            found = sum(bool(each.any()) for each in differ), sum(int(each.sum()) for each in differ)
            if found > most:
                most, chosen = found, logical
            if found[1] == outputs or (most[0] == len(made) and draw + 1 >= DRAWS[0]):
                break
        self._logical = self._logical[0], chosen
        self._encoded.clear()

    def _outputs(self, key: KernelKey, logical: Arrays) -> list[npt.NDArray[Any]]:
        axes = self.workload.axes
        return [each.values for each in expectations(self.op, axes, key, self.op.reference(logical, axes, key))]


def admitted(cases: Cases, variant: Variant, axes: Axes) -> Cases:
    """The cases as they apply to that variant: within the error that its own arithmetic admits, if it declares one, and
    not in place if its launch packs its inputs.

    Raises InvalidArgumentError if it does not accept the inputs, and BrokenReferenceError for an invalid bound.
    """
    if variant.error_bound is None:
        return replace(cases, in_place=cases.in_place and not variant.packs)
    first, *further = (
        replace(case, expected=_within(case, _bounds(variant.error_bound, case.logical, axes)))
        for case in (cases.first, cases.second)
        if case is not None
    )
    return Cases(first, further[0] if further else None, in_place=cases.in_place and not variant.packs)


def _bounds(bound: Callable[[Arrays, Axes], Mapping[str, Any]], logical: Arrays, axes: Axes) -> Mapping[str, Any]:
    with np.errstate(invalid="ignore"):  # the bound for NaN and infinity does not count
        return bound(logical, axes)


def _within(case: Case, bounds: Mapping[str, Any]) -> tuple[Expected, ...]:
    found = []
    for each in case.expected:
        if not is_float(each.values.dtype):  # integers are exact in any arithmetic
            found.append(each)
            continue
        bound = np.broadcast_to(np.asarray(bounds[each.name], np.float64), each.values.shape)
        bound = np.where(np.isfinite(each.exact.astype(np.float64)), bound, 0.0)  # infinities and NaN are exact
        if not (np.isfinite(bound) & (bound >= 0)).all():
            raise BrokenReferenceError(
                f"the bound of {each.name} is negative or not finite; it must be finite and 0 or more"
            )
        with np.errstate(over="ignore", invalid="ignore"):  # if a value overflows, only the infinity is correct
            rounding = np.abs(each.values.astype(np.float64) - each.exact.astype(np.float64))
        bound = np.maximum(bound, np.where(np.isfinite(rounding), rounding, 0.0))  # no kernel can be closer
        found.append(replace(each, tolerance_kind=ToleranceKind.BOUNDED, error_bound=bound))
    return tuple(found)


def _generated(op: Op, workload: Workload, rng: np.random.Generator, salts: Mapping[str, str] | None) -> dict[str, Any]:
    made = op.generate(workload.axes, workload.family, rng)
    return made if salts is None else salted(op, made, salts, rng)


def _near(op: Op, first: Arrays, second: Arrays, rng: np.random.Generator) -> dict[str, Any]:
    """The first set with some elements of the second: one to three anywhere, or a short run, in each array. Offsets,
    which ascend, are those of either set."""
    made = dict(second)
    offsets = {tensor.name for tensor in op.inputs if tensor.values is Values.OFFSETS}
    for name, value in second.items():
        if name in offsets:
            made[name] = first[name] if rng.random() < 0.5 else value
        elif is_array(value) and value.shape == np.shape(first[name]):
            array = np.array(first[name])
            flat, other = array.reshape(-1), value.reshape(-1)
            begin = int(rng.integers(flat.size))
            run = slice(begin, begin + int(rng.integers(1, 65)))
            chosen: Any = run if rng.random() < 0.5 else rng.integers(flat.size, size=int(rng.integers(1, 4)))
            # In some families one array is large where the other is small. No array may become larger, or sums
            # overflow.
            with np.errstate(invalid="ignore"):  # the data may hold a signalling NaN
                most = np.fmax.reduce(np.abs(flat.astype(np.float64)))
                larger = np.abs(other[chosen].astype(np.float64)) > most
            flat[chosen] = np.where(larger, flat[chosen], other[chosen])
            made[name] = array
    return made


def _with_stored(
    op: Op, workload: Workload, stored: StoredMatrix, rngs: Iterable[np.random.Generator]
) -> tuple[Arrays, ...]:
    """Inputs with the weights of a file. The second set has the same rows in another order, so no result of the first
    is valid for it. A large matrix has no second set."""
    from tritmark.harness.providers import installed

    assert op.stored is not None
    with open_weights(stored.path) as source:
        conventions = Conventions(stored.layout, stored.weight_scale)
        weights = TernaryWeights(source, holders_of(installed()), conventions)
        info = weights.matrix(stored.name)
        if info is None:
            raise source.error(stored.name, "no ternary matrix", "one")
        codes, scale = weights.read(info)
    first, second = (op.stored.inputs(workload.axes, codes, scale, rng) for rng in rngs)
    if _elements(op, workload.axes) >= LARGE:
        return (first,)
    scalars = {tensor.name: first[tensor.name] for tensor in op.inputs if not tensor.axes}
    return first, _Rolled({**second, **scalars}, codes)


class _Rolled(Mapping[str, Any]):
    """Inputs with the rows of `codes` in another order: copied on access, because they are large."""

    def __init__(self, inputs: Arrays, codes: npt.NDArray[Any]) -> None:
        self._inputs, self._codes = inputs, codes

    def __getitem__(self, name: str) -> Any:
        value = self._inputs[name]
        return np.roll(value, len(value) // 2, axis=0) if value is self._codes else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._inputs)

    def __len__(self) -> int:
        return len(self._inputs)


def is_array(value: Any) -> bool:
    """Whether an input is passed in its own memory. Anything else is a scalar."""
    return isinstance(value, np.ndarray) and value.ndim > 0


def _elements(op: Op, axes: Axes) -> int:
    """Number of elements of an op's input arrays. Axes that are not axes of the op are not known beforehand and count
    as 1."""
    return sum(prod(axes.get(axis, 1) for axis in tensor.axes) for tensor in op.inputs if tensor.axes)


def _repeated(op: Op, workload: Workload, rng: np.random.Generator) -> dict[str, Any]:
    """Inputs of a large workload: a part of the longest axis, repeated."""
    axes = workload.axes
    # Offsets count rows, so the axes of rows keep their sizes.
    counted = any(tensor.values is Values.OFFSETS for tensor in op.inputs)
    may = {axis for tensor in op.inputs for axis in tensor.axes[counted:] if axis in axes}
    longest = max(may, key=lambda axis: axes[axis])
    length = max(1, axes[longest] * PART // _elements(op, axes)) | 1
    made = op.generate({**axes, longest: length}, workload.family, rng)
    for tensor in op.inputs:
        if longest in tensor.axes:
            made[tensor.name] = _along(made[tensor.name], tensor.axes.index(longest), axes[longest])
    return made


def _along(part: npt.NDArray[Any], axis: int, size: int) -> npt.NDArray[Any]:
    """The array, repeated along one axis up to `size`."""
    whole = np.empty((*part.shape[:axis], size, *part.shape[axis + 1 :]), part.dtype)
    step = part.shape[axis]
    before = (slice(None),) * axis
    for start in range(0, size, step):
        end = min(start + step, size)
        whole[(*before, slice(start, end))] = part[(*before, slice(0, end - start))]
    return whole


def _identity(workload: Workload) -> tuple[object, ...]:
    return workload.op, tuple(workload.axes.items()), workload.family, workload.stored


def _alike(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    if first.keys() != second.keys():
        return False
    for name, value in first.items():
        other = second[name]
        if is_array(value) != is_array(other):
            return False
        same = (
            value.shape == other.shape and value.dtype == other.dtype
            if is_array(value)
            else bool(np.all(value == other))
        )
        if not same:
            return False
    return True
