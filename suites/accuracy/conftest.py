"""What the numerics tests share: arrays at a chosen distance from a cache line, with guards around them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

LINE, GUARD, POISON = 64, 64, 0xA5


class Guarded:
    """An array that begins `offset` elements past a 64-byte boundary. It and the bytes around it begin as poison."""

    def __init__(self, n: int, dtype: npt.DTypeLike, offset: int) -> None:
        kind = np.dtype(dtype)
        self._bytes = np.full(GUARD + LINE + (offset + n) * kind.itemsize + GUARD, POISON, np.uint8)
        self._begin = GUARD + (-(self._bytes.ctypes.data + GUARD)) % LINE + offset * kind.itemsize
        self._end = self._begin + n * kind.itemsize
        self.array = self._bytes[self._begin : self._end].view(kind)

    @property
    def intact(self) -> bool:
        """Whether nothing was written around the array."""
        return bool(np.all(self._bytes[: self._begin] == POISON) and np.all(self._bytes[self._end :] == POISON))

    @property
    def untouched(self) -> bool:
        """Whether nothing was written at all."""
        return bool(np.all(self._bytes == POISON))


@pytest.fixture(scope="session")
def guarded() -> Callable[[int, npt.DTypeLike, int], Guarded]:
    """guarded(n, dtype, offset): an output array of n elements with guards."""
    return Guarded


@pytest.fixture(scope="session")
def at_offset() -> Callable[[np.ndarray, int], np.ndarray]:
    """at_offset(values, offset): a copy that begins `offset` elements past a 64-byte boundary."""

    def copy(values: np.ndarray, offset: int) -> np.ndarray:
        array = Guarded(values.size, values.dtype, offset).array
        array[:] = values
        return array

    return copy
