"""Seeded input families for `generate` of an op. All are deterministic for a given generator.

- "uniform", "normal", "constant", "zero", "denormals", "one_nonzero"
- "heavy": tails of a Cauchy distribution
- "ties": exact halves of a step, and their neighbours
- "extremes": the largest and smallest values of the type
- "corners", for products of integers: rows of only the least or only the greatest value, which give the largest sums of
  either sign
- "scales", for products of integers: ordinary values with scales of any size
- "nonfinite", for contracts that define results of NaN and infinity: ordinary values with some of them
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.spec import Sizes

FLOAT_FAMILIES = ("uniform", "normal", "heavy", "constant", "zero", "ties", "denormals", "extremes", "one_nonzero")
KINDS = 10
"""Number of non-finite patterns: infinity, quiet NaN, NaN with all bits set, signalling NaN with the least and with the
greatest bit of its payload; each with both signs."""

NONFINITE = "nonfinite"
"""Family of ops whose inputs may hold NaN and infinity. Their results are judged like all others."""

INTEGER_FAMILIES = ("uniform", "normal", "constant", "zero", "extremes", "one_nonzero")

ELEMENTS = Sizes(usual=2048, most=1 << 17)
"""Sizes of an element-wise op: vectors with tails, and sometimes enough elements for several threads."""

ROWS = Sizes(usual=70, most=640)
"""Sizes of the rows of a product: one token, batches, and remainders of register blocks."""

_F32 = np.finfo(np.float32)
_PLAIN_SCALE = 0.2


def floats(family: str, shape: tuple[int, ...], rng: np.random.Generator, step: float = 1.0) -> npt.NDArray[np.float32]:
    """Finite float32 values of a family; "ties" are multiples of step / 2 and the floats next to them."""
    if family == "uniform":
        return rng.random(shape, dtype=np.float32) * np.float32(2) - np.float32(1)
    if family == "normal":
        return rng.standard_normal(shape, dtype=np.float32)
    if family == "heavy":
        return np.clip(rng.standard_cauchy(shape), -1e30, 1e30).astype(np.float32)
    if family == "constant":
        return np.full(shape, np.float32(0.75), np.float32)
    if family == "zero":
        return np.where(rng.random(shape) < 0.5, np.float32(0.0), np.float32(-0.0))
    if family == "ties":
        at = (rng.integers(-5, 6, shape).astype(np.float32) * np.float32(0.5)) * np.float32(step)
        towards = rng.choice(np.array([-np.inf, 0.0, np.inf], np.float32), shape)
        return np.where(towards == 0, at, np.nextafter(at, towards)).astype(np.float32)
    if family == "denormals":
        bits = rng.integers(0, 1 << 23, shape, dtype=np.uint32) | (
            rng.integers(0, 2, shape, dtype=np.uint32) << np.uint32(31)
        )
        return bits.view(np.float32)
    if family == "extremes":
        pool = np.array(
            [_F32.max, -_F32.max, _F32.tiny, -_F32.tiny, _F32.smallest_subnormal, 0.0, -0.0, 1.0], np.float32
        )
        return rng.choice(pool, shape)
    if family == "one_nonzero":
        return _one_nonzero(shape, np.float32(-0.625), np.float32, rng)
    raise UsageError(f"unknown input family {family!r} for floats; {nearest(family, FLOAT_FAMILIES)}")


def integers(
    family: str, shape: tuple[int, ...], low: int, high: int, rng: np.random.Generator
) -> npt.NDArray[np.int8]:
    """int8 values of a family within [low, high]. "constant" is `high` everywhere, which exposes narrow
    accumulators."""
    if family in {"uniform", "scales"}:
        return rng.integers(low, high + 1, shape, dtype=np.int8)
    if family == "corners":
        rows = rng.choice(np.array([low, high], np.int8), (shape[0], *(1 for _ in shape[1:])))
        return np.ascontiguousarray(np.broadcast_to(rows, shape))
    if family == "normal":
        spread = max(1.0, (high - low) / 6)
        return np.clip(np.rint(rng.standard_normal(shape) * spread), low, high).astype(np.int8)
    if family == "constant":
        return np.full(shape, high, np.int8)
    if family == "zero":
        return np.zeros(shape, np.int8)
    if family == "extremes":
        return rng.choice(np.array([low, high], np.int8), shape)
    if family == "one_nonzero":
        return _one_nonzero(shape, np.int8(low), np.int8, rng)
    raise UsageError(f"unknown input family {family!r} for integers; {nearest(family, INTEGER_FAMILIES)}")


def scales(family: str, shape: tuple[int, ...], rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Positive float32 scales, mostly not powers of two, so that a division instead of a product shows. "extremes"
    spans 1e-37 to 1e38; "denormals" is below the least normal number."""
    if family == "denormals":
        return np.asarray(rng.integers(1, 1 << 23, shape, dtype=np.uint32)).view(np.float32)
    if rng.random() < _PLAIN_SCALE:
        # Powers of two, or only 1: a kernel may skip a product with them, or be correct only for them.
        powers = rng.integers(-3, 4, shape) if rng.random() < 0.5 else np.zeros(shape, np.int64)
        return np.asarray(np.ldexp(1.0, powers), dtype=np.float32)
    exponent = rng.uniform(-37, 38, shape) if family == "extremes" else rng.uniform(-2, 1, shape)
    return np.asarray(np.float32(1.1) * np.power(10.0, exponent), dtype=np.float32)


def _one_nonzero(shape: tuple[int, ...], value: Any, dtype: Any, rng: np.random.Generator) -> npt.NDArray[Any]:
    array = np.zeros(shape, dtype)
    array.flat[int(rng.integers(array.size))] = value
    return array


def scales_apart(
    shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """A positive float32 number, and an array of divisors of any size in float32, denormals included.

    All magnitudes of the quotients are equally likely, from those that float32 flushes to zero to those that it cannot
    hold. A kernel that computes the quotient or a reciprocal in float32 loses precision that the contract's float64
    keeps.
    """
    largest, smallest = 38.0, -44.0
    exponent = rng.uniform(smallest, largest)
    quotient = rng.uniform(smallest, largest, shape)
    below = np.clip(exponent - quotient, smallest, largest)
    return np.asarray(10.0**exponent, np.float32), np.power(10.0, below).astype(np.float32)


def forbidden(dtype: np.dtype[Any], kind: int) -> int:
    """The bits of a non-finite float of one of KINDS kinds."""
    bits = 8 * dtype.itemsize
    info = _finfo(dtype)
    mantissa = int(info.nmant)
    exponent = ((1 << (bits - 1 - mantissa)) - 1) << mantissa
    payload = (0, 1 << (mantissa - 1), 1, (1 << mantissa) - 1, 1 << (mantissa - 2))[kind // 2]
    return exponent | payload | (kind % 2) << (bits - 1)


def with_nonfinite(values: npt.NDArray[Any], rng: np.random.Generator, most: int) -> npt.NDArray[Any]:
    """The values with 1 to `most` of them replaced by infinity or NaN of any kind."""
    made = np.array(values)
    flat = made.reshape(-1).view(f"u{made.dtype.itemsize}")
    for at in rng.integers(flat.size, size=int(rng.integers(1, most + 1))):
        # Half of them are infinities, which are only 2 of the KINDS.
        kind = int(rng.integers(2) if rng.random() < 0.5 else rng.integers(KINDS))
        flat[at] = forbidden(made.dtype, kind)
    return made


def _finfo(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return np.finfo(dtype)
    import ml_dtypes

    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
