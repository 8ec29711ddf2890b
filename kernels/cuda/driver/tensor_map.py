"""Tensor maps of matrices for the bulk tensor copy engine (9.0 and newer). The driver encodes an array, and a kernel
takes the map by value as a parameter (CUtensorMap)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.machine import libcuda

if TYPE_CHECKING:
    from tritmark.kernels.cuda.array import DeviceArray

ENCODE = "cuTensorMapEncodeTiled"
NBYTES = 128
SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}
"""CUtensorMapSwizzle by the width in bytes in which units of 16 are exchanged; 16 means no exchange."""
_UINT8, _INTERLEAVE_NONE, _PROMOTE_128B, _FILL_ZERO = 0, 0, 2, 0
NO_MAP = np.void(bytes(NBYTES))
"""For a kernel that does not use the map."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A matrix of bytes from which a kernel copies boxes; elements outside of it read as 0."""

    array: DeviceArray
    """The array in which the matrix begins."""
    width: int
    """Bytes per row."""
    height: int
    """Number of rows."""
    apart: int
    """Distance of rows in bytes, a multiple of 16."""
    box: tuple[int, int]
    """Bytes per row of a box (16, 32, 64 or 128, also the width of the swizzle), and its rows, at most 256."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Width, height, apart, box, and the number of its swizzle, for `encoded` and CudaPlan."""
        return self.width, self.height, self.apart, *self.box, SWIZZLES[self.box[0]]


def encoded(pointer: int, numbers: tuple[int, ...]) -> Any:
    """The tensor map of the matrix at that address from the driver: np.void of 128 bytes.

    Raises DeviceUnavailableError if the driver refuses.
    """
    width, height, apart, box_width, box_height, swizzle = numbers
    room = (ctypes.c_uint8 * (NBYTES + 64))()
    at = -(-ctypes.addressof(room) // 64) * 64
    try:
        libcuda.call(
            ENCODE,
            ctypes.c_void_p(at),
            _UINT8,
            2,
            ctypes.c_void_p(pointer),
            (ctypes.c_uint64 * 2)(width, height),
            (ctypes.c_uint64 * 1)(apart),
            (ctypes.c_uint32 * 2)(box_width, box_height),
            (ctypes.c_uint32 * 2)(1, 1),
            _INTERLEAVE_NONE,
            swizzle,
            _PROMOTE_128B,
            _FILL_ZERO,
        )
    except libcuda.DriverError as why:
        raise DeviceUnavailableError(
            f"the driver cannot make a tensor map of {height} rows of {width} bytes at {pointer:#x}: {why}",
            next_step="update the driver, or use another variant",
        ) from None
    return np.void(ctypes.string_at(at, NBYTES))
