"""Values that a contract admits and that families do not contain: whole inputs of one kind, and single elements among
others.

A kind is a common property of all elements of one input on which kernels may depend: one sign, one value, the order,
the size. Kinds are dealt with the case (see draw), so that each occurs as early as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Arrays, Op, Tensor, Values

Array = npt.NDArray[Any]
Rng = np.random.Generator
Change = Callable[[Array, Rng], Array]


def kinds(tensor: Tensor) -> Mapping[str, Change]:
    """The possible kinds of an input. Each function changes an array of the input's shape, in float32 or int8, into
    that kind."""
    if tensor.values is Values.OFFSETS:
        return {}
    if named_dtype(tensor.dtype) == np.int8:
        found = _CODES if tensor.values is Values.TERNARY else _INTEGERS
    elif tensor.values is Values.POSITIVE:
        found = _SCALES
    else:
        # If NaN and infinities are inputs, the op and its families limit the size of sums.
        found = {**_FLOATS, **_LARGE} if tensor.values is Values.FINITE else _FLOATS
    rows = _OF_ROWS if len(tensor.axes) == 2 else ()
    return {**found, **{f"row of {name}": _row(found[name]) for name in rows if name in found}}


def salted(op: Op, logical: Arrays, dealt: Mapping[str, str], rng: Rng) -> dict[str, Any]:
    """Inputs of the dealt kinds, by name. Most others get some replaced elements: zeros of both signs, denormals, the
    least and greatest integers, runs of one code, and whole rows of them."""
    made = dict(logical)
    for tensor in op.inputs:
        array = np.asarray(made[tensor.name])
        if tensor.name in dealt:
            made[tensor.name] = _of_kind(array, tensor, kinds(tensor)[dealt[tensor.name]], rng)
        elif tensor.axes and tensor.values not in _AS_DRAWN and rng.random() >= _UNSALTED:
            made[tensor.name] = _strewn(array, tensor, rng)
    return made


def _of_kind(array: Array, tensor: Tensor, change: Change, rng: Rng) -> Array:
    """The array changed to that kind. NaN and infinities stay, and are not part of the kind."""
    plain = _plain(array)
    outside = ~np.isfinite(plain)
    if not outside.any():
        return _as(array.dtype, change(plain, rng), tensor, array)
    finite = np.where(outside, 0, plain).astype(plain.dtype)
    made = np.array(_as(array.dtype, change(finite, rng), tensor, finite))
    made[outside] = array[outside]
    return made


def _plain(array: Array) -> Array:
    return array if array.dtype == np.int8 else array.astype(np.float32)


def _as(dtype: np.dtype[Any], values: Array, tensor: Tensor, before: Array) -> Array:
    """Values in the input's dtype. For an input that may hold any value, no larger than before, so that the sums of its
    family stay within judged limits."""
    if dtype == np.int8:
        return values.astype(dtype)
    if tensor.values is Values.ANY and before.size:
        most = np.abs(before.astype(np.float32)).max() or np.float32(1)
        values = np.clip(values, -most, most)
    return np.asarray(values, np.float32).astype(dtype)


def _strewn(array: Array, tensor: Tensor, rng: Rng) -> Array:
    """Replace a few elements, sometimes a run, sometimes a row."""
    pool = (
        _SALT_CODES
        if tensor.values is Values.TERNARY
        else _SALT_INTEGERS
        if array.dtype == np.int8
        else _salt_floats(array.dtype)
    )
    array = np.array(array)
    flat = array.reshape(-1)
    flat[rng.integers(flat.size, size=int(rng.integers(1, 4)))] = rng.choice(pool)
    begin, length = int(rng.integers(flat.size)), int(rng.integers(1, 65))
    if rng.random() < _RARE:
        flat[begin : begin + length] = rng.choice(pool)
    if array.ndim > 1 and rng.random() < _RARE:
        array[rng.integers(len(array))] = rng.choice(pool[:2])
    return array


def _salt_floats(dtype: np.dtype[Any]) -> Array:
    info = np.finfo(dtype) if dtype.kind == "f" else _F32  # bfloat16 has the exponents of float32
    least = info.smallest_subnormal if dtype.kind == "f" else np.ldexp(np.float32(1), -133)
    return np.array([0.0, -0.0, least, -least, info.tiny, -info.tiny], np.float32).astype(dtype)


def _all(value: float) -> Change:
    return lambda values, rng: np.full_like(values, value)


def _row(change: Change) -> Change:
    """Change one row to that kind."""

    def changed(values: Array, rng: Rng) -> Array:
        made, at = np.array(values), int(rng.integers(len(values)))
        made[at] = change(made[at], rng)
        return made

    return changed


def _flat(change: Callable[[Array, Rng], None]) -> Change:
    """A change made in place to a flat copy."""

    def changed(values: Array, rng: Rng) -> Array:
        made = np.array(values).reshape(-1)
        change(made, rng)
        return made.reshape(values.shape)

    return changed


def _alternating(low: float, high: float) -> Change:
    return lambda values, rng: np.where(np.arange(values.size).reshape(values.shape) % 2, low, high).astype(
        values.dtype
    )


def _one(value: float) -> Change:
    """One element of that value or its negative, and zeros elsewhere."""

    def changed(flat: Array, rng: Rng) -> None:
        flat[...] = 0
        flat[int(rng.integers(flat.size))] = rng.choice(np.array([value, -value], flat.dtype))

    return _flat(changed)


def _nonzero(values: Array) -> Array:
    """Ones in place of zeros."""
    return np.where(values == 0, values.dtype.type(1), values)


def _within(low: float, high: float) -> Change:
    """Positive numbers between these powers of ten; all magnitudes are equally likely."""
    return lambda values, rng: np.asarray(10.0 ** rng.uniform(low, high, values.shape), np.float32)


def _scaled(low: float, high: float) -> Change:
    """Scale all elements to one magnitude between these powers of ten."""

    def changed(values: Array, rng: Rng) -> Array:
        largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
        factor = 10.0 ** rng.uniform(low, high) / (largest or 1.0)
        made: Array = (values.astype(np.float64) * factor).astype(np.float32)
        return made

    return changed


def _near(value: float) -> Change:
    """All elements near that magnitude, up to one part in 2^k away."""

    def changed(values: Array, rng: Rng) -> Array:
        share = np.ldexp(rng.uniform(-1, 1, values.shape), -int(rng.integers(24)))
        return np.asarray(np.copysign(value * (1 + share), values), np.float32)

    return changed


def _peak(place: Callable[[int, Rng], int], magnitude: Callable[[Array, Rng], float]) -> Change:
    """Make one element the largest."""

    def changed(flat: Array, rng: Rng) -> None:
        flat[place(flat.size, rng)] = magnitude(flat, rng) * rng.choice((-1, 1))

    return _flat(changed)


def _twice(flat: Array, rng: Rng) -> float:
    return min(2.0 * float(np.abs(flat).max()) + 1.0, float(_F32.max))


def _denormals(values: Array, rng: Rng) -> Array:
    return np.asarray(rng.integers(1, 1 << 23, values.shape, dtype=np.uint32)).view(np.float32)


def _powers(values: Array, rng: Rng) -> Array:
    return np.asarray(np.copysign(np.ldexp(1.0, rng.integers(-10, 10, values.shape)), values), np.float32)


_F32 = np.finfo(np.float32)
_UNSALTED = 0.3
_AS_DRAWN = frozenset((Values.POSITIVE, Values.OFFSETS))
"""Inputs of which single elements stay as the family drew them."""
_RARE = 0.25
_SALT_INTEGERS = np.array([0, -128, 127, -1, 1, -127], np.int8)
_SALT_CODES = np.array([0, -1, 1], np.int8)

_OF_ROWS = ("the least", "the greatest", "-1", "1", "zeros", "all the same", "all negative", "never negative")

_CODES: Mapping[str, Change] = {
    "-1": _all(-1),
    "zeros": _all(0),
    "1": _all(1),
    "no -1": lambda values, rng: np.maximum(values, 0),
    "no zero": lambda values, rng: _nonzero(values),
    "no 1": lambda values, rng: np.minimum(values, 0),
    "alternating 1 and -1": _alternating(1, -1),
    "one nonzero": _one(1),
}

_INTEGERS: Mapping[str, Change] = {
    "the least": _all(-128),
    "the greatest": _all(127),
    "all -127": _all(-127),
    "-1": _all(-1),
    "1": _all(1),
    "zeros": _all(0),
    "all the same": lambda values, rng: np.full_like(values, rng.integers(-128, 128)),
    "all negative": lambda values, rng: np.where(values < 0, values, -1 - values).astype(values.dtype),
    "never positive": lambda values, rng: np.minimum(values, 0),
    "never negative": lambda values, rng: np.maximum(values, 0),
    "no zero": lambda values, rng: _nonzero(values),
    "the least and the greatest": lambda values, rng: rng.choice(np.array([-128, 127], np.int8), values.shape),
    "alternating least and greatest": _alternating(-128, 127),
    "one nonzero": _one(127),
}

_SCALES: Mapping[str, Change] = {
    "1": _all(1),
    "powers of two": lambda values, rng: np.abs(_powers(values, rng)),
    "all the same": lambda values, rng: np.full_like(values, values.reshape(-1)[0]),
    "denormal": _denormals,
    "tiny": _within(-37, -30),
    "small": _within(-12, -4),
    "large": _within(4, 12),
    "huge": _within(30, 38),
}

_FLOATS: Mapping[str, Change] = {
    "never negative": lambda values, rng: np.abs(values),
    "all negative": lambda values, rng: -np.abs(_nonzero(values)),
    "all the same": lambda values, rng: np.full_like(values, rng.standard_normal()),
    "alternating 1 and -1": _alternating(1, -1),
    "small": _scaled(-37, -5),
    # Least scales of contracts.
    "near 1e-5": _near(1e-5),
    "near 1e-8": _near(1e-8),
    "no zero": lambda values, rng: _nonzero(values),
    "powers of two": _powers,
    "whole numbers": lambda values, rng: np.rint(np.clip(values, -1e4, 1e4)),
    "rising": _flat(lambda flat, rng: flat.sort()),
    "falling": _flat(lambda flat, rng: flat[::-1].sort()),
    "largest last": _peak(lambda size, rng: size - 1, _twice),
    "largest first": _peak(lambda size, rng: 0, _twice),
    "zeros": lambda values, rng: np.copysign(np.float32(0), values),
}

_LARGE: Mapping[str, Change] = {
    "huge": _scaled(30, 38.5),
    "one huge": _peak(lambda size, rng: int(rng.integers(size)), lambda flat, rng: 10.0 ** rng.uniform(30, 38.5)),
}
"""Values above 1e30, for inputs that must be finite."""
