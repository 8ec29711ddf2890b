"""Names of dtypes, NumPy's and those of ml_dtypes, and how elements of their sizes lie."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt


@cache
def named_dtype(name: str) -> np.dtype[Any]:
    """The dtype of that name in native byte order, bfloat16 and the like included. Raises TypeError or
    AttributeError."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        other: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return other


def dtype_of(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """As np.dtype, and by the names of ml_dtypes too, which NumPy knows only once that was imported. Raises TypeError
    or AttributeError."""
    return named_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)


def strides_of(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Bytes from element to element along each axis of an array in C order."""
    strides = [itemsize]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides)) if shape else ()
