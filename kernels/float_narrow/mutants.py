"""Mutants of float_narrow. None changes the result for a NaN: the harness refuses to judge against
a NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.numerics.narrowing import narrowed

_OP = "float_narrow"
_DROPPED = {"float16": 13, "bfloat16": 16}
_LARGEST = {"float16": 0x7BFF, "bfloat16": 0x7F7F}
_LEAST_NORMAL = {"float16": 0x0400, "bfloat16": 0x0080}

Bits = npt.NDArray[np.uint16]


def _towards_zero(x: npt.NDArray[np.float32], dtype: str) -> Bits:
    """The correct bits, minus 1 where rounding increased the magnitude."""
    made = narrowed(x, dtype)
    up = np.abs(made.astype(np.float32)) > np.abs(x)
    return made.view(np.uint16) - up.astype(np.uint16)


def _away(x: npt.NDArray[np.float32], dtype: str) -> Bits:
    """Ties in normal numbers rounded up in magnitude."""
    made = narrowed(x, dtype).view(np.uint16)
    tie = x.view(np.uint32) & np.uint32((1 << _DROPPED[dtype]) - 1) == 1 << (_DROPPED[dtype] - 1)
    low = _towards_zero(x, dtype)
    normal = (low & 0x7FFF >= _LEAST_NORMAL[dtype]) & (low & 0x7FFF < _LARGEST[dtype])
    return np.where(tie & normal & np.isfinite(x), low + np.uint16(1), made)


def _flushed(x: npt.NDArray[np.float32], dtype: str) -> Bits:
    made = narrowed(x, dtype).view(np.uint16)
    return np.where(made & 0x7FFF < _LEAST_NORMAL[dtype], made & 0x8000, made).astype(np.uint16)


def _saturated(x: npt.NDArray[np.float32], dtype: str) -> Bits:
    made = narrowed(x, dtype).view(np.uint16)
    return np.where(made & 0x7FFF > _LARGEST[dtype], made & 0x8000 | _LARGEST[dtype], made).astype(np.uint16)


def _early_infinity(x: npt.NDArray[np.float32], dtype: str) -> Bits:
    """Every value above the largest becomes infinite, including those that round to the largest."""
    made = narrowed(x, dtype).view(np.uint16)
    largest = np.full(1, _LARGEST[dtype], np.uint16).view(named_dtype(dtype)).astype(np.float32)
    return np.where(np.abs(x) > largest, made & 0x8000 | (_LARGEST[dtype] + 1), made).astype(np.uint16)


def _mutant(name: str, bits: Callable[[npt.NDArray[np.float32], str], Bits]) -> Mutant:
    def compute(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
        return {"h": bits(inputs["x"], key.dtype).view(named_dtype(key.dtype))}

    return Mutant(op=_OP, name=name, compute=compute)


MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    _mutant("rounded towards zero", _towards_zero),
    _mutant("ties rounded away from zero", _away),
    _mutant("denormals taken for zero", _flushed),
    _mutant("infinity becomes the largest number", _saturated),
    _mutant("past the largest number all is infinite", _early_infinity),
)
