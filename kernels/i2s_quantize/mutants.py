"""Mutants of i2s_quantize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.numerics.input_dtypes import NARROW, given, other_type

Floats = npt.NDArray[np.float32]


def _by(q: Callable[[Floats, np.float32], npt.NDArray[Any]]) -> Callable[[Arrays, Axes, KernelKey], dict[str, Any]]:
    return lambda inputs, axes, key: {"q": q(given(inputs["x"], key.input_dtype), np.float32(inputs["scale"]))}


def _away(x: Floats) -> Floats:
    return np.trunc(x + np.copysign(np.float32(0.5), x))


def _other_type(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    return {"q": np.rint(np.clip(other_type(inputs["x"], key.input_dtype) / np.float32(inputs["scale"]), -2, 1))}


def _mutant(name: str, q: Callable[[Floats, np.float32], npt.NDArray[Any]]) -> Mutant:
    return Mutant(op="i2s_quantize", name=name, compute=_by(q))


MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    _mutant("ties rounded away from zero", lambda x, s: _away(np.clip(x / s, -2, 1))),
    _mutant("rounded down", lambda x, s: np.floor(np.clip(x / s, -2, 1))),
    _mutant("rounded towards zero", lambda x, s: np.trunc(np.clip(x / s, -2, 1))),
    _mutant("times the inverse of the scale", lambda x, s: np.rint(np.clip(x * (np.float32(1) / s), -2, 1))),
    _mutant("clamped at -1", lambda x, s: np.rint(np.clip(x / s, -1, 1))),
    _mutant("clamped at 2", lambda x, s: np.rint(np.clip(x / s, -2, 2))),
    _mutant("not clamped", lambda x, s: np.clip(np.rint(x / s), -128, 127)),
    Mutant(
        op="i2s_quantize",
        name="read as the other 16-bit type",
        compute=_other_type,
        only=lambda key: key.input_dtype in NARROW,
    ),
    _mutant(
        "denormals taken for zero",
        lambda x, s: np.rint(np.clip(np.where(np.abs(x) < np.finfo(np.float32).tiny, 0, x) / s, -2, 1)),
    ),
)
