"""Draws cases that an op's contract admits: shapes, thread counts, addresses, strides and values.

These draws are independent of the judgement's draws, which are under test: mutants survive in a class of cases that the
judgement never draws. Triggers are built from these cases, so that they fire on them (see triggers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.selftest.right import CorrectKernel
from tritmark.harness.selftest.values import Forbidden, ValueClass
from tritmark.harness.spec import Arrays, Op
from tritmark.harness.validate.cases import is_array
from tritmark.harness.validate.compare import BrokenReferenceError, Expected, expectations

Array = npt.NDArray[Any]
Rng = np.random.Generator

ELEMENTS = 1 << 17
"""Maximum elements of all inputs together: a case takes milliseconds."""
SMALL = 70
"""Half of the sizes are drawn from 1 to SMALL: there, kernels switch between paths for few and for many rows."""
COMMON = 300
"""The other sizes are drawn log-uniformly up to the suite's largest, and at least to COMMON."""
LINE = 64
"""Bytes of a cache line and of the widest vector. Addresses are drawn modulo LINE."""
GAP = 130
"""Maximum elements between strided rows."""
MOST_THREADS = 8
_WIDTHS = tuple(1 << power for power in range(2, 9))
"""Some sizes are rounded up to a multiple of one of these, for kernels without a tail."""
_TRIES = 200


class NothingAdmittedError(Exception):
    """The contract and the constraints admitted no draw."""


@dataclass(frozen=True)
class MutantCase:
    """One case. `offsets` (bytes past a cache line) and `gaps` (elements between rows) are by the arrays' names;
    `logical` are the inputs for the reference."""

    right: CorrectKernel
    axes: Mapping[str, int]
    threads: int
    offsets: Mapping[str, int]
    gaps: Mapping[str, int]
    logical: Arrays
    forbidden: Mapping[str, Mapping[int, Any]] = field(default_factory=dict)
    """Elements, by flat index, that the contract forbids and a kernel must report; they are set after encoding."""

    @cached_property
    def inputs(self) -> Arrays:
        """The encoded inputs for a kernel."""
        made = dict(self.right.op.encode(self.logical, self.axes, self.right.key.format))
        for name, places in self.forbidden.items():
            array = made[name] = np.array(made[name])
            for at, value in places.items():
                array.reshape(-1)[at] = value
        return made

    @cached_property
    def expected(self) -> Mapping[str, Expected]:
        """The expected outputs by name. Raises BrokenReferenceError if the reference cannot be used."""
        op, key = self.right.op, self.right.key
        with np.errstate(all="ignore"):
            return {
                each.name: each for each in expectations(op, self.axes, key, op.reference(self.logical, self.axes, key))
            }

    def laid(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Inputs and outputs in new memory at the case's offsets and gaps; outputs hold a filling."""
        inputs = {
            name: self._lay(name, np.asarray(value)) if is_array(value) else value
            for name, value in self.inputs.items()
        }  # fmt: skip
        like = self.right.op.outputs_like(self.axes, self.right.key)
        outputs = {
            name: self._lay(name, np.full(shape, 0x5A, named_dtype(dtype))) for name, (shape, dtype) in like.items()
        }
        return inputs, outputs

    def _lay(self, name: str, values: Array) -> Array:
        gap = self.gaps.get(name, 0) if values.ndim == 2 else 0
        shape = (*values.shape[:-1], values.shape[-1] + gap) if values.ndim else ()
        # An unused cache line at either end, into which mutants may write
        raw = np.empty(4 * LINE + prod(shape) * values.itemsize, np.uint8)
        start = LINE + -raw.ctypes.data % LINE + self.offsets.get(name, 0)
        whole: Array = np.ndarray(shape, values.dtype, raw, start)
        whole[...] = 0
        array = whole[:, : values.shape[1]] if gap else whole
        array[...] = values
        return array


@dataclass(frozen=True)
class Domain:
    """All cases of a kernel. `reach` has the largest size of each axis in the suite's workloads; `cores` is the thread
    count called "all"."""

    right: CorrectKernel
    reach: Mapping[str, int]
    cores: int

    @property
    def op(self) -> Op:
        return self.right.op

    def draw(
        self, rng: Rng, kind: str = "", value: ValueClass | None = None, forbidden: Forbidden | None = None
    ) -> MutantCase:
        """Draw a case. If `kind` is "alignment", "stride" or "threads", this property is not the default one. `value`
        is imposed on the inputs, and `forbidden` elements are set.

        Raises NothingAdmittedError if there is no such case.
        """
        for _ in range(_TRIES):
            axes = self._axes(rng)
            if axes is None:
                continue
            try:
                with np.errstate(all="ignore"):
                    logical = self.op.generate(axes, str(rng.choice(self.op.input_families)), rng)
                    if value is not None:
                        logical = {**logical, value.tensor: value.impose(np.array(logical[value.tensor]), rng)}
                case = self._case(rng, kind, axes, logical)
                _ = case.inputs, case.expected
            except (InvalidArgumentError, BrokenReferenceError):
                continue
            # Check the decoded values, which the trigger sees: a layout may store less than was drawn.
            if value is not None and not value.holds(np.asarray(self.right.decode(case.inputs, axes)[value.tensor])):
                continue
            if forbidden is None:
                return case
            places = forbidden.places(np.asarray(case.inputs[forbidden.tensor]), rng)
            if places:
                return MutantCase(
                    self.right, axes, case.threads, case.offsets, case.gaps, logical, {forbidden.tensor: places}
                )
        raise NothingAdmittedError(f"{self.right.key}: {value or forbidden or kind or 'any case'}")

    def _case(self, rng: Rng, kind: str, axes: Mapping[str, int], logical: Arrays) -> MutantCase:
        op, key = self.op, self.right.key
        encoded = op.encode(logical, axes, key.format)
        sizes = {name: np.asarray(value).itemsize for name, value in encoded.items() if is_array(value)}
        sizes |= {name: named_dtype(dtype).itemsize for name, (_, dtype) in op.outputs_like(axes, key).items()}
        shifted = kind == "alignment" or rng.random() < 0.5
        offsets = {name: int(rng.integers(LINE // size)) * size if shifted else 0 for name, size in sizes.items()}
        ragged = kind == "stride" or rng.random() < 0.5
        gaps = {
            each.name: int(np.exp(rng.uniform(0, np.log(GAP)))) if ragged else 0
            for each in op.inputs
            if each.strided_rows
        }
        threads = (
            int(rng.choice([*range(2, MOST_THREADS + 1), self.cores])) if kind == "threads" or rng.random() < 0.5 else 1
        )
        return MutantCase(self.right, axes, threads, offsets, gaps, logical)

    def _axes(self, rng: Rng) -> dict[str, int] | None:
        axes = {axis: self._size(axis, rng) for axis in self.op.axes}
        while self._elements(axes) > ELEMENTS:
            largest = max(axes, key=axes.__getitem__)
            axes[largest] = max(1, int(axes[largest] * rng.uniform(0.3, 0.9)))
        return self._admitted(axes, rng)

    def _size(self, axis: str, rng: Rng) -> int:
        most = max(COMMON, min(self.reach.get(axis, 1), ELEMENTS))
        size = int(rng.integers(1, SMALL + 1)) if rng.random() < 0.5 else int(np.exp(rng.uniform(0, np.log(most))))
        if rng.random() < 0.3:
            width = int(rng.choice(_WIDTHS))
            size = -(-size // width) * width
        return size

    def _elements(self, axes: Mapping[str, int]) -> int:
        return sum(prod(axes.get(axis, 1) for axis in tensor.axes) for tensor in self.op.inputs if tensor.axes)

    def _admitted(self, axes: dict[str, int], rng: Rng) -> dict[str, int] | None:
        """The axes, some rounded up if needed, so that the key's layout and the kernel's constraints admit them; None
        if that fails."""
        if self._fits(axes):
            return axes
        for name in rng.permutation(list(axes)):
            for width in _WIDTHS:
                for others in (1, width):
                    made = {axis: -(-size // (width if axis == name else others)) * (width if axis == name else others)
                            for axis, size in axes.items()}  # fmt: skip
                    if self._fits(made):
                        return made
        fixed = {**axes, str(rng.choice(list(axes))): int(rng.choice(_WIDTHS))}
        return fixed if self._fits(fixed) else None

    def _fits(self, axes: Mapping[str, int]) -> bool:
        if any(limit.refusal(axes) is not None for limit in self.right.constraints):
            return False
        try:
            self.op.outputs_like(axes, self.right.key)
        except InvalidArgumentError:
            return False
        return self._elements(axes) <= 4 * ELEMENTS


def reach(workloads: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The largest size of each axis in workloads."""
    found: dict[str, int] = {}
    for axes in workloads:
        for axis, size in axes.items():
            found[axis] = max(found.get(axis, 1), size)
    return found
