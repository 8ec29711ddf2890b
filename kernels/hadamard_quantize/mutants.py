"""Mutants of hadamard_quantize and hadamard_transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.activation_quantize.reference import LEAST
from tritmark.kernels.hadamard_quantize.reference import butterflies, factor
from tritmark.kernels.hadamard_quantize.spec import QUANTIZE, TRANSFORM
from tritmark.kernels.numerics.input_dtypes import given, other_type

Floats = npt.NDArray[np.float32]
Rotate = Callable[[Floats, Floats, int], Floats]
"""y (M, K) of x (M, K), signs (K,) and the block."""


def _blocks(x: Floats, block: int) -> Floats:
    return x.reshape(len(x), -1, block)


def _rotate(x: Floats, signs: Floats, block: int) -> Floats:
    y: Floats = (butterflies(_blocks(x * signs, block)) * factor(block)).reshape(x.shape)
    return y


def _sequency(x: Floats, signs: Floats, block: int) -> Floats:
    """The rows of the matrix in the order of their sign changes."""
    codes = np.arange(block) ^ np.arange(block) >> 1
    bits = block.bit_length() - 1
    order = np.array([int(f"{code:0{bits}b}"[::-1], 2) for code in codes])
    y: Floats = _blocks(_rotate(x, signs, block), block)[..., order].reshape(x.shape)
    return y


def _unscaled(x: Floats, signs: Floats, block: int) -> Floats:
    y: Floats = butterflies(_blocks(x * signs, block)).reshape(x.shape)
    return y


def _signs_last(x: Floats, signs: Floats, block: int) -> Floats:
    y: Floats = _rotate(x, np.ones_like(signs), block) * signs
    return y


def _half_blocks(x: Floats, signs: Floats, block: int) -> Floats:
    return _rotate(x, signs, block // 2)


def _stage_missing(x: Floats, signs: Floats, block: int) -> Floats:
    """Without the butterflies at the largest distance."""
    y: Floats = (butterflies(_blocks(x * signs, block // 2)) * factor(block)).reshape(x.shape)
    return y


def _last_block_skipped(x: Floats, signs: Floats, block: int) -> Floats:
    y = _rotate(x, signs, block)
    y[:, -block:] = (x * signs)[:, -block:]
    return y


def _narrow_sums(x: Floats, signs: Floats, block: int) -> Floats:
    """Sums in float16."""
    half = _blocks(x * signs, block).astype(np.float16)
    y: Floats = (butterflies(half).astype(np.float32) * factor(block)).reshape(x.shape)
    return y


def _rint(product: Floats) -> Floats:
    return np.rint(product).clip(np.float32(-128), np.float32(127))


def _away(product: Floats) -> Floats:
    return np.trunc(product + np.copysign(np.float32(0.5), product)).clip(np.float32(-128), np.float32(127))


def _scales(y: Floats) -> Floats:
    scale: Floats = (np.float32(127) / np.maximum(np.abs(y).max(axis=1), LEAST)).astype(np.float32)
    return scale


def _quantize(
    y: Floats, scales: Callable[[Floats], Floats] = _scales, codes: Callable[[Floats], Floats] = _rint
) -> dict[str, Any]:
    finite = np.asarray(np.isfinite(y).all(axis=1))
    clean = np.where(finite[:, np.newaxis], y, np.float32(0))
    scale = scales(clean)
    q = codes(clean * scale[:, np.newaxis]).astype(np.int64)
    return {"q": q, "scale": np.where(finite, scale, np.float32(np.nan)), "sum": q.sum(axis=1)}


def _mutants(
    name: str, rotate: Rotate = _rotate, read: Callable[[Floats, str], Floats] = given, **more: Any
) -> tuple[Mutant, ...]:
    """The mutant of both ops."""

    def compute(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
        x, signs = read(inputs["x"], key.input_dtype), inputs["signs"].astype(np.float32)
        y = rotate(x, signs, axes["block"])
        return _quantize(y) if key.op == QUANTIZE.op else {"y": y}

    return tuple(Mutant(op=op, name=name, compute=compute, **more) for op in (QUANTIZE.op, TRANSFORM.op))


def _of_codes(name: str, **different: Any) -> Mutant:
    """A mutant of the op that quantizes."""

    def compute(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
        x, signs = given(inputs["x"], key.input_dtype), inputs["signs"].astype(np.float32)
        return _quantize(_rotate(x, signs, axes["block"]), **different)

    return Mutant(op=QUANTIZE.op, name=name, compute=compute)


_WHOLE = "K is a multiple of 64, so no row has a tail"
_NO_TAILS = (
    (QUANTIZE.op, "output q: tail never written"),
    (TRANSFORM.op, "output y: tail never written"),
    *((op, f"input {name}: tail not read") for op in (QUANTIZE.op, TRANSFORM.op) for name in ("x", "signs")),
)

MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    *_mutants("the matrix in sequency order", _sequency),
    *_mutants("not normalized", _unscaled),
    *_mutants("signs after the matrix", _signs_last),
    *_mutants("blocks of half the size", _half_blocks),
    *_mutants("the last butterflies missing", _stage_missing),
    *_mutants("the last block not rotated", _last_block_skipped),
    *_mutants("sums in float16", _narrow_sums),
    *_mutants("read as the other 16-bit type", read=other_type, only=lambda key: key.input_dtype != "none"),
    _of_codes("the scale of the row before", scales=lambda y: np.roll(_scales(y), 1)),
    _of_codes("no least magnitude", scales=lambda y: np.float32(127) / np.maximum(np.abs(y).max(axis=1), 1e-38)),
    _of_codes(
        "the largest, not the largest magnitude", scales=lambda y: np.float32(127) / np.maximum(y.max(axis=1), LEAST)
    ),
    _of_codes("ties rounded away from zero", codes=_away),
    _of_codes("rounded towards zero", codes=np.trunc),
    *(EquivalentMutants(op=op, mutant=mutant, reason=_WHOLE) for op, mutant in _NO_TAILS),
)
