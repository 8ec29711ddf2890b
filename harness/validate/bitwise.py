"""Bitwise comparison of arrays, block by block: temporary arrays stay small, and the first difference ends it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.validate.guards import bits

_BLOCK = 1 << 20


def same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Whether two arrays of equal length and element size are bitwise equal, in C order."""
    a, b = bits(one), bits(other)
    return a.size == b.size and all(
        np.array_equal(a[at : at + _BLOCK], b[at : at + _BLOCK]) for at in range(0, a.size, _BLOCK)
    )


def filled(array: npt.NDArray[np.uint8], byte: int) -> bool:
    """Whether every byte of a flat array has that value."""
    return all((array[at : at + _BLOCK] == byte).all() for at in range(0, array.size, _BLOCK))
