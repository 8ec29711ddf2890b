"""Arrays of other libraries on the GPU, as DeviceArrays in their memory."""

from __future__ import annotations

import math
from typing import Any

import numpy.typing as npt

from tritmark.harness.dtypes import dtype_of
from tritmark.harness.resident import ResidentArray
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.context import cuda_context
from tritmark.kernels.cuda.launch import DEVICE
from tritmark.kernels.dispatch.array_library import ArrayLibrary


class _Foreign:
    """Memory that another library keeps as long as its array exists."""

    def __init__(self, array: Any, pointer: int, nbytes: int) -> None:
        self._array = array
        self.pointer = pointer
        self.nbytes = nbytes

    def free(self) -> None:
        """Does nothing; the memory is freed with the array."""


class ForeignArray(DeviceArray, ResidentArray):
    """An array of another library on the GPU."""

    __slots__ = ("_context", "_library", "device", "index", "owned")

    def __init__(self, library: ArrayLibrary, owned: Any, index: int = 0) -> None:
        self._library = library
        self.index = index
        self._context = cuda_context(index)
        self.device = f"{DEVICE}:{index}" if index else DEVICE
        self.owned = owned
        shape, dtype, strides, pointer = library.there(owned)
        memory = _Foreign(owned, pointer, math.prod(shape) * dtype.itemsize)
        super().__init__(self._context.backend, memory, pointer, shape, dtype, strides or None)

    @property
    def writable(self) -> bool:
        """See ResidentArray."""
        return self._library.writable

    def reshape(self, *shape: Any) -> ForeignArray:
        """See ResidentArray."""
        asked = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        known = math.prod(size for size in asked if size >= 0)
        sizes = tuple(self.size // known if size < 0 else size for size in asked)
        made = ForeignArray(self._library, self.owned.reshape(sizes), self.index)
        if made.pointer != self.pointer:
            if self.writable:
                raise ValueError(f"an array with strides {self.strides} has no shape {sizes} without a copy")
            self._context.backend.synchronize()  # a read-only library may copy for each shape
        return made

    def new(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> ForeignArray:
        """See ResidentArray."""
        return ForeignArray(self._library, self._library.empty(self.owned, shape, dtype_of(dtype)), self.index)

    def assign(self, other: Any) -> None:
        """See ResidentArray."""
        self._library.assign(self.owned, other.owned)
        self._context.backend.synchronize()  # the library may copy in any stream

    def copied(self) -> ForeignArray:
        """See ResidentArray."""
        return ForeignArray(self._library, self._library.copied(self.owned), self.index)

    def sum(self, values: npt.NDArray[Any]) -> ForeignArray:
        """See ResidentArray."""
        return ForeignArray(self._library, self._library.sum(self.owned, values), self.index)

    def element(self, index: tuple[int, ...]) -> Any:
        """See ResidentArray."""
        return self.owned[index].item()


def foreign_array(library: ArrayLibrary, value: Any, index: int) -> ForeignArray:
    """A library's array on the GPU `index`, after all work on it is complete. Raises DeviceUnavailableError if that GPU
    cannot be used."""
    # The library may use any stream.
    cuda_context(index).backend.synchronize()
    return ForeignArray(library, value, index)
