"""Compare outputs with the reference, element by element, by the error family of the op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.record import Divergence
from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, ToleranceKind
from tritmark.harness.validate.bitwise import same
from tritmark.harness.validate.families import NONFINITE
from tritmark.harness.validate.guards import bits

_BLOCK = 1 << 16
"""Elements compared at a time."""


class BrokenReferenceError(Exception):
    """The expected values cannot be used: a NaN would match every value, or none."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One expected output.

    `values` have the output's dtype (rounded once if the reference is float64). Errors are measured from `exact`.
    `error_bound` is the largest admitted error, for the bounded kind.
    """

    name: str
    tolerance_kind: ToleranceKind
    values: npt.NDArray[Any]
    exact: npt.NDArray[Any]
    error_bound: npt.NDArray[np.float64] | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of one output."""

    wrong: npt.NDArray[np.intp]
    """Flat indices, in C order, of the elements outside the tolerance."""
    largest_error: float
    """Largest finite absolute difference."""
    largest_ulp: float
    """Largest difference in units in the last place; for integers the same as the error."""
    first: Divergence | None


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is a float, including ml_dtypes (of kind V)."""
    return dtype.kind not in "biu"


def expectations(op: Op, axes: Axes, key: KernelKey, reference: Arrays) -> tuple[Expected, ...]:
    """Outputs of the reference, checked and converted to the outputs' dtypes.

    A float output of an op with rounded results is judged by a bound if the reference gives one. So is an integer
    output of an op with bounded results: the reference then returns float64 values that may lie between integers. For
    an op with the family "nonfinite", a NaN in the reference is expected, and an infinity is exact.

    Raises BrokenReferenceError for a missing output, another shape, a NaN, a dtype that cannot be compared bit for bit,
    an integer that the output's dtype cannot hold, and a bound that is missing, negative or not finite.
    """
    return tuple(
        _expected(op, tensor.name, reference, shape, named_dtype(dtype))
        for tensor in op.outputs
        for shape, dtype in [op.outputs_like(axes, key)[tensor.name]]
    )


def _expected(op: Op, name: str, reference: Arrays, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Expected:
    def broken(what: str) -> BrokenReferenceError:
        return BrokenReferenceError(f"the reference of {op.name} is broken: {name} {what}")

    if name not in reference:
        raise broken("is missing")
    exact = np.asarray(reference[name])
    if exact.shape != shape:
        raise broken(f"has shape {exact.shape}, and must have {shape}")
    bounded = op.tolerance_kind is ToleranceKind.BOUNDED and f"{name}.bound" in reference
    if not is_float(dtype) and not (bounded and is_float(exact.dtype)):
        if is_float(exact.dtype):
            raise broken(f"is {exact.dtype}, but the output holds integers")
        _check_range(exact, dtype, broken)
        values = exact.astype(dtype)
        return Expected(name, ToleranceKind.EXACT, _frozen(values), values, None)
    through = NONFINITE in op.input_families
    nan = np.flatnonzero(np.isnan(exact))
    if nan.size and not through:
        raise broken(f"is NaN at index {_index(int(nan[0]), shape)}, which no output can match")
    if op.tolerance_kind is ToleranceKind.EXACT and exact.dtype != dtype:
        raise broken(f"is {exact.dtype}, but only {dtype} can be compared bit for bit")
    if is_float(dtype):
        values = exact if exact.dtype == dtype else rounded(exact.astype(np.float64, copy=False), dtype)
    elif nan.size:
        raise broken(f"is NaN at index {_index(int(nan[0]), shape)}, but the output holds integers")
    else:
        _check_range(np.rint(exact), dtype, broken)
        values = np.rint(exact).astype(dtype)
    bound, kind = None, op.tolerance_kind
    if kind is ToleranceKind.ROUNDED and f"{name}.bound" in reference:
        kind = ToleranceKind.BOUNDED
    if kind is ToleranceKind.BOUNDED:
        if f"{name}.bound" not in reference:
            raise broken(f"has no bound; return it as {name}.bound")
        bound = np.broadcast_to(np.asarray(reference[f"{name}.bound"], np.float64), shape)
        if through:
            bound = np.where(np.isfinite(exact), bound, 0.0)
        if not (np.isfinite(bound) & (bound >= 0)).all():
            raise broken("has a bound that is negative or not finite; bounds must be finite and 0 or more")
    return Expected(name, kind, _frozen(values), exact, bound)


def _check_range(values: npt.NDArray[Any], dtype: np.dtype[Any], broken: Callable[[str], BrokenReferenceError]) -> None:
    limits = np.iinfo(dtype)
    if values.size and not (limits.min <= values.min() and values.max() <= limits.max):
        raise broken(f"exceeds the range of {dtype}")


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.setflags(write=False)
    return array


def compare(expected: Expected, found: npt.NDArray[Any]) -> Comparison:
    """Judge one output array of the expected shape and dtype, in blocks, so that temporary arrays stay small."""
    if expected.exact is expected.values and expected.error_bound is None and same(found, expected.values):
        return Comparison(np.empty(0, np.intp), 0.0, 0.0, None)
    values, flat = expected.values.reshape(-1), found.reshape(-1)
    exact = values if expected.exact is expected.values else expected.exact.reshape(-1)
    bound = None if expected.error_bound is None else expected.error_bound.reshape(-1)
    wrong, largest_error, largest_ulp = [np.empty(0, np.intp)], 0.0, 0.0
    for start in range(0, flat.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        within = None if bound is None else bound[part]
        outside, error, ulp = _compared(expected.tolerance_kind, values[part], exact[part], within, flat[part])
        wrong.append(outside + start)
        largest_error, largest_ulp = max(largest_error, error), max(largest_ulp, ulp)
    indices = np.concatenate(wrong)
    first = None
    if indices.size:
        at = int(indices[0])
        first = Divergence(
            output=expected.name,
            index=_index(at, found.shape),
            expected=_shown(values[at], beside=flat[at]),
            found=_shown(flat[at], beside=values[at]),
        )
    return Comparison(indices, largest_error, largest_ulp, first)


def _shown(value: Any, beside: Any) -> str:
    """A number as text; of a NaN beside another NaN also its bits."""
    if not is_float(value.dtype) or not (np.isnan(value) and np.isnan(beside)):
        return str(value)
    return f"{value} ({bits(np.asarray(value))[0]:#x})"


def _compared(
    kind: ToleranceKind,
    values: npt.NDArray[Any],
    exact: npt.NDArray[Any],
    bound: npt.NDArray[np.float64] | None,
    found: npt.NDArray[Any],
) -> tuple[npt.NDArray[np.intp], float, float]:
    """For flat arrays: incorrect indices, the largest error and the largest difference in ulps."""
    error = _difference(found, exact)
    ulps = _ulps(found, values) if is_float(found.dtype) else error
    if kind is ToleranceKind.EXACT:
        wrong = bits(found) != bits(values)
    elif kind is ToleranceKind.ROUNDED:
        wrong = ~(ulps <= 1) & ~_both_nan(exact, found)
    else:
        assert bound is not None
        wrong = ~(error <= bound)
        if is_float(found.dtype):
            wrong &= ~_overflowed(exact, bound, found) & ~_both_nan(exact, found)
    return np.flatnonzero(wrong), _largest(error), _largest(ulps)


def largest_difference(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Largest finite absolute difference."""
    a, b = one.reshape(-1), other.reshape(-1)
    parts = (slice(start, start + _BLOCK) for start in range(0, a.size, _BLOCK))
    return max((_largest(_difference(a[part], b[part])) for part in parts), default=0.0)


def rounded(exact: npt.NDArray[np.float64], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """float64 rounded once, to nearest even.

    ml_dtypes converts from float64 through float32, which rounds twice. Rounding the first step to odd (towards zero,
    then setting the last bit if anything was lost) makes the second one correct, because a float32 has more than two
    bits beyond a bfloat16 (Boldo and Melquiond, "When double rounding is odd", 2005).
    """
    with np.errstate(over="ignore", under="ignore"):
        if dtype.kind == "f":
            return exact.astype(dtype)
        single = exact.astype(np.float32)
        too_far = np.abs(single.astype(np.float64)) > np.abs(exact)
        single = np.where(too_far, np.nextafter(single, np.float32(0)), single)
        odd: npt.NDArray[np.uint32] = single.view(np.uint32) | (single.astype(np.float64) != exact).astype(np.uint32)
        return odd.view(np.float32).astype(dtype)


def _overflowed(
    exact: npt.NDArray[Any], bound: npt.NDArray[np.float64], found: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """Elements, flat, with an infinity in the output for which the bound reaches a value that the dtype rounds to
    it."""
    with np.errstate(invalid="ignore"):  # outputs may hold a signalling NaN
        infinite: npt.NDArray[np.bool_] = np.isinf(found.reshape(-1).astype(np.float64))
        if infinite.any():
            furthest = exact.astype(np.float64) + np.copysign(bound, exact)
            infinite &= (rounded(furthest, found.dtype) == found).reshape(-1)
    return infinite


def _both_nan(exact: npt.NDArray[Any], found: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Elements, flat, with an expected and found NaN: sign and payload of a NaN sum are not defined."""
    expected: npt.NDArray[np.bool_] = np.isnan(exact.reshape(-1))
    return expected & np.isnan(found.reshape(-1)) if expected.any() else expected


def _difference(found: npt.NDArray[Any], exact: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Absolute difference, flat; 0 if both are the same infinity, NaN if either is NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        a, b = found.reshape(-1).astype(np.float64), exact.reshape(-1).astype(np.float64)
        return np.where(a == b, 0.0, np.abs(a - b))


def _ulps(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Number of floats between the two, flat; infinite if `found` is NaN. Both zeros count as one."""
    if same(found, expected) and not np.isnan(found).any():  # the usual case, and fast
        return np.zeros(found.size)
    a, b = _ordinal(found), _ordinal(expected)
    apart = (np.maximum(a, b) - np.minimum(a, b)).astype(np.float64)
    with np.errstate(invalid="ignore"):  # outputs may hold a signalling NaN
        return np.where(np.isnan(found.reshape(-1)), np.inf, apart)


def _ordinal(array: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Integers in the order of the floats; neighbouring floats differ by one."""
    flat = bits(array).astype(np.uint64)
    sign = np.uint64(1) << np.uint64(8 * array.dtype.itemsize - 1)
    return np.where(flat & sign, sign - (flat & (sign - np.uint64(1))), sign + flat)


def _largest(values: npt.NDArray[np.float64]) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else 0.0


def _index(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(at, shape))
