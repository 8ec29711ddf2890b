"""What the numerics tests share: arrays at a chosen distance from a cache line, with guards around them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from tritmark.harness.validate.guards import Guarded


@pytest.fixture(scope="session")
def guarded() -> Callable[[int, npt.DTypeLike, int], Guarded]:
    """guarded(n, dtype, offset): an output array of n elements, `offset` of them past a 64-byte boundary, with guards."""

    def make(n: int, dtype: npt.DTypeLike, offset: int) -> Guarded:
        kind = np.dtype(dtype)
        array = Guarded((n,), kind, seed=n, offset=offset * kind.itemsize)
        array.poison()
        return array

    return make


@pytest.fixture(scope="session")
def at_offset(guarded) -> Callable[[np.ndarray, int], np.ndarray]:
    """at_offset(values, offset): a copy that begins `offset` elements past a 64-byte boundary."""

    def copy(values: np.ndarray, offset: int) -> np.ndarray:
        array = guarded(values.size, values.dtype, offset).array
        array[:] = values
        return array

    return copy
