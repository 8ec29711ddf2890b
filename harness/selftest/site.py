"""Where mutants are planted: the data of one workload for one key, and what is right for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, ToleranceKind
from tritmark.harness.validate.cases import Case, Cases, Material
from tritmark.harness.validate.compare import Expected, is_float, rounded
from tritmark.harness.validate.guards import bits

Array = npt.NDArray[Any]
Outputs = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class MutantSite:
    """Two sets of data, each as the reference takes it, as a kernel takes it, and with the outputs that are right
    for it."""

    op: Op
    key: KernelKey
    axes: Axes
    cases: Cases
    logical: Sequence[Arrays]
    data: tuple[Case, ...]
    right: tuple[Outputs, ...]

    def expected(self, nth: int) -> dict[str, Expected]:
        """What the `nth` set of data should give, by the output's name."""
        return {each.name: each for each in self.data[nth].expected}

    def compute(self, inputs: Arrays) -> Outputs:
        """The reference on other logical inputs, as a kernel would write its outputs."""
        with np.errstate(all="ignore"):
            return self.written(self.op.reference(inputs, self.axes, self.key))

    def written(self, outputs: Arrays) -> Outputs:
        """Outputs brought to their dtypes: floats rounded once, integers wrapped."""
        made = {}
        with np.errstate(all="ignore"):
            for name, (shape, dtype) in self.op.outputs_like(self.axes, self.key).items():
                value, kind = np.asarray(outputs[name]), named_dtype(dtype)
                value = (
                    rounded(value.astype(np.float64), kind)
                    if is_float(kind) and value.dtype != kind
                    else value.astype(kind)
                )
                made[name] = np.ascontiguousarray(np.broadcast_to(value, shape)).reshape(shape)
        return made


def site(material: Material, key: KernelKey) -> MutantSite:
    """The site of a workload that has two sets of data."""
    cases = material.cases(key)
    if cases.second is None:
        raise ValueError("a workload with one set of data")
    data = (cases.first, cases.second)
    right = tuple({each.name: each.values for each in case.expected} for case in data)
    return MutantSite(material.op, key, material.workload.axes, cases, material.logical, data, right)


def apart(array: Array, steps: int) -> Array:
    """Each float `steps` units of the last place further from zero, or nearer where there is nothing further."""
    flat = bits(array)
    magnitude = flat & ~_sign(flat)
    largest = bits(np.full(1, np.inf, array.dtype))[0]
    step = flat.dtype.type(steps)
    moved: Array = np.where(magnitude + step < largest, flat + step, flat - step).astype(flat.dtype)
    return moved.view(array.dtype).reshape(array.shape)


def other_zero(array: Array) -> Array:
    """Zeros with the other sign."""
    flat = bits(array)
    zeros = (flat & ~_sign(flat)) == 0
    return np.where(zeros, flat ^ _sign(flat), flat).astype(flat.dtype).view(array.dtype).reshape(array.shape)


def _sign(flat: Array) -> Any:
    return flat.dtype.type(1 << (8 * flat.itemsize - 1))


def admits(expected: Expected, found: Array) -> bool:
    """Whether the op's contract admits these values: any NaN for a NaN. Written apart from the judgement's own
    comparison, which is what is tested."""
    if expected.tolerance_kind is ToleranceKind.EXACT:
        return bool(np.array_equal(bits(found), bits(expected.values)))
    if expected.tolerance_kind is ToleranceKind.ROUNDED:
        a, b = bits(found), bits(expected.values)
        one = a.dtype.type(1)
        zeros = ((a | b) & ~_sign(a)) == 0
        near = (
            (a == b)
            | zeros
            | (((a ^ b) & _sign(a)) == 0) & ((a == b + one) | (b == a + one)) & ~np.isnan(found.reshape(-1))
            | np.isnan(expected.values.reshape(-1)) & np.isnan(found.reshape(-1))
        )
        return bool(near.all())
    assert expected.error_bound is not None
    with np.errstate(all="ignore"):
        exact = expected.exact.astype(np.float64)
        error = np.abs(found.astype(np.float64) - exact)
        overflow = (rounded(exact + np.copysign(expected.error_bound, exact), found.dtype) == found) & np.isinf(found)
    neither = np.isnan(exact) & np.isnan(found)
    return bool(((error <= expected.error_bound) | overflow | neither).all())
