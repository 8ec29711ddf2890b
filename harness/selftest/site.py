"""The site of mutants: the data of one workload for one key, and the expected outputs."""

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
    """Two sets of data, each in the reference's form (`logical`), in a kernel's form (`data`), and with the correct
    outputs (`right`)."""

    op: Op
    key: KernelKey
    axes: Axes
    cases: Cases
    logical: Sequence[Arrays]
    data: tuple[Case, ...]
    right: tuple[Outputs, ...]

    def expected(self, nth: int) -> dict[str, Expected]:
        """The expected outputs of the `nth` set of data, by name."""
        return {each.name: each for each in self.data[nth].expected}

    def compute(self, inputs: Arrays) -> Outputs:
        """The reference's outputs for other logical inputs, in the dtypes that a kernel writes."""
        with np.errstate(all="ignore"):
            return self.written(self.op.reference(inputs, self.axes, self.key))

    def written(self, outputs: Arrays) -> Outputs:
        """Outputs converted to their dtypes: floats are rounded once, integers wrap."""
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
    """The site of a workload with two sets of data. Raises ValueError for a workload with one."""
    cases = material.cases(key)
    if cases.second is None:
        raise ValueError("a workload with one set of data; legal: two")
    data = (cases.first, cases.second)
    right = tuple({each.name: each.values for each in case.expected} for case in data)
    return MutantSite(material.op, key, material.workload.axes, cases, material.logical, data, right)


def apart(array: Array, steps: int) -> Array:
    """Each float moved `steps` units of the last place away from zero; towards zero if it would overflow."""
    flat = bits(array)
    magnitude = flat & ~_sign(flat)
    largest = bits(np.full(1, np.inf, array.dtype))[0]
    step = flat.dtype.type(steps)
    moved: Array = np.where(magnitude + step < largest, flat + step, flat - step).astype(flat.dtype)
    return moved.view(array.dtype).reshape(array.shape)


def other_zero(array: Array) -> Array:
    """The array, with the sign of zeros inverted."""
    flat = bits(array)
    zeros = (flat & ~_sign(flat)) == 0
    return np.where(zeros, flat ^ _sign(flat), flat).astype(flat.dtype).view(array.dtype).reshape(array.shape)


def _sign(flat: Array) -> Any:
    return flat.dtype.type(1 << (8 * flat.itemsize - 1))


def admits(expected: Expected, found: Array) -> bool:
    """Whether the op's contract admits these values; any NaN is admitted for a NaN. This code is independent of the
    judgement's comparison, which is under test."""
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
    if found.dtype.kind in "iu":
        return bool((error <= expected.error_bound).all())
    with np.errstate(all="ignore"):
        overflow = (rounded(exact + np.copysign(expected.error_bound, exact), found.dtype) == found) & np.isinf(found)
    neither = np.isnan(exact) & np.isnan(found)
    return bool(((error <= expected.error_bound) | overflow | neither).all())
