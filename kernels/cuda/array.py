"""Arrays in device memory."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import dtype_of, strides_of
from tritmark.kernels.cuda.backend import Allocation, Stream


class Copies(Protocol):
    """Copies between host and device: a backend, or the counted copies of a context."""

    def write(self, pointer: int, values: npt.NDArray[Any], stream: Stream | None = None) -> None:
        """See Backend."""

    def read(self, pointer: int, into: npt.NDArray[Any], stream: Stream | None = None) -> None:
        """See Backend."""


class DeviceArray:
    """An array in device memory with shape, dtype and strides (bytes) as in NumPy. It keeps the memory alive.

    Torch, CuPy and Numba use it without a copy through `__cuda_array_interface__` (only on a real GPU).
    """

    __slots__ = ("_copies", "_filled", "_interface", "_offset", "_output", "dtype", "owner", "shape", "strides")

    def __init__(
        self,
        copies: Copies,
        owner: Allocation,
        pointer: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self._copies = copies
        self.owner = owner
        self._offset = pointer - owner.pointer
        self.shape = shape
        self.dtype: np.dtype[Any] = dtype_of(dtype)
        self.strides = strides or strides_of(shape, self.dtype.itemsize)
        self._interface: dict[str, Any] | None = None
        self._filled = self._output = False

    @property
    def constant(self) -> bool:
        """Whether no launch writes it, so that a kernel may read it while earlier launches still run. True if it was
        filled from the host and is no output. A view copies this state when it is made."""
        return self._filled and not self._output

    def mark_filled(self) -> None:
        """Mark the content as complete; callers must not write it afterwards."""
        self._filled = True

    def mark_output(self) -> None:
        """Mark it as written by launches from now on."""
        self._output = True

    @property
    def pointer(self) -> int:
        """Address on the device. Raises FreedMemoryError if the memory was freed."""
        return self.owner.pointer + self._offset

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without gaps between rows."""
        return self.size * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether it is C-contiguous."""
        return self.strides == strides_of(self.shape, self.dtype.itemsize)

    def view(
        self,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike | None = None,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
    ) -> DeviceArray:
        """Another array in the same memory, from byte `offset` of this one."""
        made = DeviceArray(self._copies, self.owner, self.pointer + offset, shape, dtype or self.dtype, strides)
        made._filled, made._output = self._filled, self._output
        return made

    def write(self, values: npt.NDArray[Any]) -> None:
        """Copy a C-contiguous NumPy array with the same number of bytes into this C-contiguous array."""
        self._copies.write(self.pointer, self._same(values))
        self.mark_filled()

    def read(self, into: npt.NDArray[Any]) -> None:
        """Copy this C-contiguous array into a C-contiguous NumPy array with the same number of bytes."""
        self._copies.read(self.pointer, self._same(into))

    def numpy(self) -> npt.NDArray[Any]:
        """A copy on the host."""
        into = np.empty(self.shape, self.dtype)
        if self.contiguous:
            self.read(into)
            return into
        rows = self.view((self.strides[0] * (self.shape[0] - 1) + self.nbytes // self.shape[0],), np.uint8)
        raw = rows.numpy()
        into[...] = np.ndarray(self.shape, self.dtype, buffer=raw, strides=self.strides)
        return into

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        pointer = self.pointer
        self.mark_output()  # the consumer may write it
        # The same objects in each call: PyTorch never frees those that it receives (pytorch/pytorch#194877), so a
        # new set per call would leak.
        if self._interface is None:
            self._interface = {
                "shape": self.shape,
                "typestr": self.dtype.str if self.dtype.kind != "V" else f"<V{self.dtype.itemsize}",
                "data": (pointer, False),
                "strides": None if self.contiguous else self.strides,
                "version": 3,
            }
        return dict(self._interface)

    def _same(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if values.nbytes != self.nbytes or not values.flags.c_contiguous or not self.contiguous:
            raise ValueError(
                f"host and device must have equal C-contiguous bytes; found {values.nbytes} and {self.nbytes}"
            )
        return values
