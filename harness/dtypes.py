"""Dtypes of NumPy and ml_dtypes by name, and strides of arrays."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt


@cache
def named_dtype(name: str) -> np.dtype[Any]:
    """The dtype of that name in native byte order, also of ml_dtypes, such as bfloat16. Raises TypeError or
    AttributeError."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        other: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return other


def dtype_of(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """As np.dtype, and also by names of ml_dtypes, which NumPy knows only after its import. Raises TypeError or
    AttributeError."""
    return named_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)


def strides_of(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of an array in C order."""
    strides = [itemsize]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides)) if shape else ()
