"""Classes of values on which a mutant may depend: properties of one input's elements, and forbidden elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Op, Tensor, Values
from tritmark.harness.validate.compare import is_float

Array = npt.NDArray[Any]
Rng = np.random.Generator


@dataclass(frozen=True)
class ValueClass:
    """A class of values. `holds(values)`: whether an input's logical values are in it. `impose(values, rng)` returns
    values that are."""

    tensor: str
    text: str
    holds: Callable[[Array], bool]
    impose: Callable[[Array, Rng], Array]


@dataclass(frozen=True)
class Forbidden:
    """A class of elements that must be reported. `matches(values, at)`: whether the first such element, at a flat
    index, is in the class. `places(values, rng)` returns some by flat index; none if the array is too small.
    """

    tensor: str
    text: str
    matches: Callable[[Array, int], bool]
    places: Callable[[Array, Rng], Mapping[int, Any]]


def value_class(op: Op, rng: Rng) -> ValueClass | None:
    """A drawn class of one input; None for an op without classes."""
    every = [each for tensor in op.inputs for each in classes(tensor)]
    return every[int(rng.integers(len(every)))] if every else None


def classes(tensor: Tensor) -> list[ValueClass]:
    """Every class of an input."""
    kind = named_dtype(tensor.dtype)
    if tensor.values is Values.OFFSETS:
        found = _offsets
    elif not is_float(kind):
        found = _ternary if tensor.values is Values.TERNARY else _integer
    elif tensor.values is Values.POSITIVE:
        found = _scale
    else:
        found = _floating
    return [
        ValueClass(tensor.name, f"{tensor.name} {text}", holds, impose)
        for text, holds, impose in found(kind, len(tensor.axes))
    ]


Made = list[tuple[str, Callable[[Array], bool], Callable[[Array, Rng], Array]]]


def _some(value: Any) -> Callable[[Array, Rng], Array]:
    """Set a few random elements to the value."""

    def impose(values: Array, rng: Rng) -> Array:
        made = values.copy()
        if not made.ndim:
            return np.asarray(value, made.dtype)
        flat = made.reshape(-1)
        flat[rng.integers(0, flat.size, max(1, flat.size // 50))] = value
        return made

    return impose


def _all(value: Any) -> Callable[[Array, Rng], Array]:
    return lambda values, rng: np.full_like(values, value)


def _row(value: Any) -> Callable[[Array, Rng], Array]:
    """Set one row to the value."""

    def impose(values: Array, rng: Rng) -> Array:
        made = values.copy()
        made[int(rng.integers(len(made)))] = value
        return made

    return impose


def _is_all(value: int) -> Callable[[Array], bool]:
    return lambda x: bool((x == value).all())


def _has_row(value: int) -> Callable[[Array], bool]:
    return lambda x: bool((x == value).reshape(len(x), -1).all(axis=1).any())


def _integer(kind: np.dtype[Any], rank: int) -> Made:
    least, most = int(np.iinfo(kind).min), int(np.iinfo(kind).max)

    def corners(values: Array, rng: Rng) -> Array:
        return rng.choice(np.array([least, most], kind), values.shape)

    made: Made = [
        (f"hold {least}", lambda x: bool((x == least).any()), _some(least)),
        (f"are all {least}", _is_all(least), _all(least)),
        (f"are all {most}", _is_all(most), _all(most)),
        ("are all 0", _is_all(0), _all(0)),
        ("are all -1", _is_all(-1), _all(-1)),
        ("are never negative", lambda x: bool((x >= 0).all()), lambda x, rng: np.maximum(x, 0)),
        ("are never positive", lambda x: bool((x <= 0).all()), lambda x, rng: np.minimum(x, 0)),
        (f"are {least} and {most} only", lambda x: bool(((x == least) | (x == most)).all()), corners),
        ("hold no 0", lambda x: bool((x != 0).all()), lambda x, rng: np.where(x == 0, kind.type(1), x)),
    ]
    if rank == 2:
        made += [("have a row of 0", _has_row(0), _row(0)), (f"have a row of {least}", _has_row(least), _row(least))]
    return made


def _ternary(kind: np.dtype[Any], rank: int) -> Made:
    def one(values: Array, rng: Rng) -> Array:
        made = np.zeros_like(values)
        made.reshape(-1)[int(rng.integers(made.size))] = rng.choice((-1, 1))
        return made

    made: Made = [(f"are all {code}", _is_all(code), _all(code)) for code in (-1, 0, 1)]
    made += [
        ("hold no 0", lambda x: bool((x != 0).all()), lambda x, rng: np.where(x == 0, kind.type(1), x)),
        ("hold no -1", lambda x: bool((x >= 0).all()), lambda x, rng: np.maximum(x, 0)),
        ("hold no 1", lambda x: bool((x <= 0).all()), lambda x, rng: np.minimum(x, 0)),
        ("hold one that is not 0", lambda x: np.count_nonzero(x) == 1, one),
    ]
    if rank == 2:
        made += [(f"have a row of {code}", _has_row(code), _row(code)) for code in (-1, 0, 1)]
    return made


def _offsets(kind: np.dtype[Any], rank: int) -> Made:
    def all_to(parts: slice) -> tuple[Callable[[Array], bool], Callable[[Array, Rng], Array]]:
        """All rows to one of these parts."""

        def holds(values: Array) -> bool:
            return bool((np.diff(values)[parts] == values[-1]).any())

        def impose(values: Array, rng: Rng) -> Array:
            made = np.zeros_like(values)
            made[int(rng.choice(np.arange(values.size - 1)[parts])) + 1 :] = values[-1]
            return made

        return holds, impose

    return [
        ("give all rows to one part", *all_to(slice(None))),
        ("give all rows to the first part", *all_to(slice(1))),
        ("give all rows to the last part", *all_to(slice(-1, None))),
    ]


def _powers(values: Array, rng: Rng) -> Array:
    return np.asarray(np.ldexp(np.ones(values.shape), rng.integers(-10, 10, values.shape)), values.dtype)


def _scale(kind: np.dtype[Any], rank: int) -> Made:
    tiny = float(np.finfo(kind).tiny)

    def denormal(values: Array, rng: Rng) -> Array:
        return np.asarray(rng.uniform(0.001, 0.9, values.shape) * tiny, values.dtype)

    def within(low: float, high: float) -> Callable[[Array, Rng], Array]:
        return lambda values, rng: np.asarray(10 ** rng.uniform(low, high, values.shape), values.dtype)

    made: Made = [
        ("holds a denormal", lambda x: bool((x < tiny).any()), denormal),
        ("holds one under 1e-30", lambda x: bool((x < 1e-30).any()), within(-37, -30.1)),
        ("holds one over 1e30", lambda x: bool((x > 1e30).any()), within(30.1, 38)),
        ("is under 1e-4", lambda x: bool((x < 1e-4).all()), within(-12, -4.1)),
        ("is over 1e4", lambda x: bool((x > 1e4).all()), within(4.1, 12)),
        ("is a power of two", lambda x: bool((np.frexp(x.astype(np.float64))[0] == 0.5).all()), _powers),
        ("is 1", _is_all(1), _all(1)),
    ]
    return made


def _floating(kind: np.dtype[Any], rank: int) -> Made:
    narrow = kind.itemsize < 4
    tiny = 2.0**-14 if str(kind) == "float16" else 2.0**-126
    huge = 3e4 if str(kind) == "float16" else 1e30

    def denormal(values: Array, rng: Rng) -> Array:
        return _some(np.asarray(tiny * rng.uniform(0.1, 0.9), kind))(values, rng)

    def signed_zeros(values: Array, rng: Rng) -> Array:
        return _some(np.asarray(-0.0, kind))(values, rng)

    def positive(values: Array, rng: Rng) -> Array:
        return np.asarray(np.abs(values), kind)

    def negative(values: Array, rng: Rng) -> Array:
        return np.asarray(-np.abs(np.where(values == 0, kind.type(1), values)), kind)

    def small(values: Array, rng: Rng) -> Array:
        return np.asarray(rng.uniform(-1, 1, values.shape) * 1e-6, kind)

    def peak_last(values: Array, rng: Rng) -> Array:
        made = values.copy()
        flat = made.reshape(-1)
        flat[-1] = kind.type(2) * np.abs(flat).max() + kind.type(1)
        return made

    def magnitude(x: Array) -> Array:
        return np.abs(x.astype(np.float64))

    made: Made = [
        ("hold -0.0", lambda x: bool(((x == 0) & np.signbit(x.astype(np.float32))).any()), signed_zeros),
        ("hold a denormal", lambda x: bool(((x != 0) & (magnitude(x) < tiny)).any()), denormal),
        ("are all 0", _is_all(0), _all(0)),
        ("are never negative", lambda x: bool((x >= 0).all()), positive),
        ("are all negative", lambda x: bool((x < 0).all()), negative),
        ("are all the same", lambda x: bool((x == x.reshape(-1)[0]).all()), _all(0.375)),
        ("are all under 1e-5", lambda x: bool((magnitude(x) < 1e-5).all()), small),
        ("have the largest last", lambda x: x.size > 1 and int(magnitude(x).argmax()) == x.size - 1, peak_last),
    ]
    if not narrow:
        made.append(
            (
                f"hold one over {huge:g}",
                lambda x: bool((magnitude(x) > huge).any()),
                _some(np.asarray(2.5 * huge, kind)),
            )
        )
    if rank == 2:
        made.append(("have a row of 0", _has_row(0), _row(0)))
    return made


_NANS = {
    "the quiet NaN": 0x7FC00000,
    "the negative quiet NaN": 0xFFC00000,
    "a signalling NaN": 0x7F800001,
    "a negative signalling NaN": 0xFFA00000,
    "the NaN of all ones": 0xFFFFFFFF,
    "infinity": 0x7F800000,
    "negative infinity": 0xFF800000,
}
"""Bit patterns of non-finite float32 values."""


def forbidden(op: Op, rng: Rng) -> Forbidden | None:
    """A drawn class of forbidden elements of one input; None for an op without forbidden values."""
    finite = [
        tensor for tensor in op.inputs if tensor.values is Values.FINITE and tensor.axes and tensor.dtype == "float32"
    ]
    if not finite:
        return None
    tensor = finite[int(rng.integers(len(finite)))]
    what, where = rng.random(2) < (0.7, 0.6)
    names = list(_NANS)
    name = names[int(rng.integers(len(names)))] if what or not where else ""
    place = _place(rng) if where else ("", lambda size, at: True)

    def matches(values: Array, at: int) -> bool:
        pattern = int(values.reshape(-1)[at : at + 1].astype(np.float32).view(np.uint32)[0])
        return (not name or pattern == _NANS[name]) and place[1](values.size, at)

    def places(values: Array, rng: Rng) -> Mapping[int, Any]:
        fitting = [at for at in range(values.size) if place[1](values.size, at)]
        if not fitting:
            return {}
        pattern = _NANS[name or str(rng.choice(names))]
        return {int(rng.choice(fitting)): np.array(pattern, np.uint32).view(np.float32)[()]}

    text = " ".join(part for part in (name or "a non-finite value", place[0]) if part)
    return Forbidden(tensor.name, f"{tensor.name} has {text}", matches, places)


def _place(rng: Rng) -> tuple[str, Callable[[int, int], bool]]:
    width = int(rng.choice((4, 8, 16, 32, 64)))
    lane = int(rng.integers(width))
    start = int(rng.integers(1, 60))
    every: list[tuple[str, Callable[[int, int], bool]]] = [
        ("at the first element", lambda size, at: at == 0),
        ("at the last element", lambda size, at: at == size - 1),
        (f"at an index of {lane} modulo {width}", lambda size, at: at % width == lane),
        (f"in the remainder after vectors of {width}", lambda size, at: at >= size // width * width),
        (f"at or past index {start}", lambda size, at: at >= start),
    ]
    return every[int(rng.integers(len(every)))]
