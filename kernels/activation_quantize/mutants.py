"""Mutants of activation_quantize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.activation_quantize.reference import LEAST
from tritmark.kernels.numerics.input_dtypes import given, other_type

Floats = npt.NDArray[np.float32]
_OP = "activation_quantize"


def _rint(product: Floats) -> Floats:
    return np.rint(product).clip(np.float32(-128), np.float32(127))


def _away(product: Floats) -> Floats:
    return np.trunc(product + np.copysign(np.float32(0.5), product)).clip(np.float32(-128), np.float32(127))


def _absmax(x: Floats) -> Floats:
    largest: Floats = np.abs(x).max(axis=1)
    return largest


def _compute(
    x: Floats,
    most: Callable[[Floats], Floats] = _absmax,
    least: np.float32 = LEAST,
    largest: int = 127,
    codes: Callable[[Floats], Floats] = _rint,
) -> dict[str, Any]:
    scale: Floats = (np.float32(largest) / np.maximum(most(x), least)).astype(np.float32)
    q = codes(x * scale[:, np.newaxis]).astype(np.int64)
    return {"q": q, "scale": scale, "sum": q.sum(axis=1)}


def _mutant(name: str, **different: Any) -> Mutant:
    return Mutant(
        op=_OP, name=name, compute=lambda inputs, axes, key: _compute(given(inputs["x"], key.input_dtype), **different)
    )


def _divided(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """x / (absmax / 127): its two roundings differ from those of x * (127 / absmax)."""
    x = given(inputs["x"], key.input_dtype)
    right = _compute(x)
    step: Floats = (np.maximum(_absmax(x), LEAST) / np.float32(127)).astype(np.float32)
    q = _rint((x / step[:, np.newaxis]).astype(np.float32)).astype(np.int64)
    return {**right, "q": q, "sum": q.sum(axis=1)}


def _running_sum(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The sum is not reset to 0 between rows."""
    right = _compute(given(inputs["x"], key.input_dtype))
    return {**right, "sum": np.cumsum(right["sum"])}


def _sum_before_rounding(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    x = given(inputs["x"], key.input_dtype)
    right = _compute(x)
    product = x.astype(np.float64) * right["scale"][:, np.newaxis]
    return {**right, "sum": np.rint(product.sum(axis=1))}


def _other_type(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    return _compute(other_type(inputs["x"], key.input_dtype))


MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    _mutant("128 in place of 127", largest=128),
    _mutant("no least magnitude", least=np.float32(1e-38)),
    _mutant("the least magnitude is 1e-8", least=np.float32(1e-8)),
    _mutant("the largest, not the largest magnitude", most=lambda x: x.max(axis=1)),
    _mutant("one scale for all rows", most=lambda x: np.broadcast_to(np.abs(x).max(), len(x))),
    _mutant("ties rounded away from zero", codes=_away),
    _mutant("rounded towards zero", codes=np.trunc),
    Mutant(op=_OP, name="divided by absmax / 127", compute=_divided),
    Mutant(op=_OP, name="the sum runs on from row to row", compute=_running_sum),
    Mutant(op=_OP, name="the sum of what was not rounded", compute=_sum_before_rounding),
    Mutant(
        op=_OP, name="read as the other 16-bit type", compute=_other_type, only=lambda key: key.input_dtype != "none"
    ),
    EquivalentMutants(op=_OP, mutant="output scale: sign of zero", reason="the scale is above zero"),
)
