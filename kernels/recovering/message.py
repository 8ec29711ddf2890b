"""What a recovering call sends to its worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tritmark.harness.recovery.strategies import Attempt
from tritmark.harness.spec import Variant

_LINE = 64
"""Addresses keep their place within a cache line of so many bytes."""


class KnownWeights(NamedTuple):
    """Weights that were sent before."""

    number: int


class StridedArray(NamedTuple):
    """An array that is strided or not aligned, which the contract may refuse: it arrives as it is."""

    values: npt.NDArray[Any]
    """C-contiguous."""
    strides: tuple[int, ...]
    nbytes: int
    """From its first to its last byte in memory."""
    offset: int
    """Of its first element from its first byte."""
    address: int
    """Of its first byte, modulo _LINE."""

    def made(self) -> npt.NDArray[Any]:
        """The array, in new memory."""
        buffer = np.zeros(self.nbytes + 2 * _LINE, np.uint8)
        begin = (self.address - buffer.ctypes.data) % _LINE
        found: npt.NDArray[Any] = np.ndarray(
            self.values.shape, self.values.dtype, buffer, begin + self.offset, self.strides
        )
        found[...] = self.values
        return found


def sent(array: npt.NDArray[Any]) -> Any:
    """The array as it is sent."""
    if array.flags.c_contiguous and array.flags.aligned:
        return copied_anew(array)
    low, high = np.lib.array_utils.byte_bounds(array)
    return StridedArray(
        np.ascontiguousarray(array).reshape(array.shape),
        array.strides,
        high - low,
        array.ctypes.data - low,
        low % _LINE,
    )


def copied_anew(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array as an object that was not sent before. The channel copies a read-only object once, but its bytes may
    change through another array or its file."""
    return array if array.flags.writeable else array.view()


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One attempt of a call."""

    function: str
    """A public function of tritmark.kernels."""
    arguments: Mapping[str, Any]
    attempt: Attempt
    weights: Mapping[int, Any]
    """PackedWeights that the worker does not have yet, by number."""
    dropped: tuple[int, ...]
    """Numbers of weights that the program no longer has."""
    variants: tuple[Variant, ...]
    """Variants that the program registered and the worker does not have yet."""
    choices_changed: bool
    """Whether measured choices may have changed since the last call."""
