"""Copies of arrays between GPUs: directly if one can access the other's memory, otherwise through the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.numbered import numbered
from tritmark.harness.resident import ResidentArray
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.context import cuda_context
from tritmark.kernels.cuda.launch import DEVICE
from tritmark.kernels.cuda.sharing.foreign_array import ForeignArray, foreign_array
from tritmark.kernels.dispatch.array_library import library_of

R = TypeVar("R")

_GPU = 2
"""DLPack's number of NVIDIA GPUs."""
PEER, STAGED = "peer", "staged"


def copy_between(source: DeviceArray, of: int, target: DeviceArray, on: int) -> str:
    """Copy a C-contiguous array on GPU `of` to one with the same bytes on GPU `on`; complete on return. Returns the
    path, PEER or STAGED. Raises DeviceError."""
    here, there = cuda_context(on), cuda_context(of)
    if here.backend.reaches(there.backend):
        here.backend.copy_from(target.pointer, there.backend, source.pointer, source.nbytes)
        return PEER
    here.transfers.write(target, there.transfers.download(source).reshape(target.shape))
    return STAGED


class GpuArray(DeviceArray, ResidentArray):
    """An array of tritmark in the memory of GPU `index`."""

    __slots__ = ("device", "index", "owned")
    writable = True

    def __init__(self, array: DeviceArray, index: int, shape: tuple[int, ...] | None = None) -> None:
        backend = cuda_context(index).backend
        super().__init__(backend, array.owner, array.pointer, array.shape if shape is None else shape, array.dtype)
        self.index = index
        self.device = f"{DEVICE}:{index}"
        self.owned = self

    def reshape(self, *shape: Any) -> GpuArray:
        """See ResidentArray."""
        asked = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        known = math.prod(size for size in asked if size >= 0)
        return GpuArray(self, self.index, tuple(self.size // known if size < 0 else size for size in asked))

    def new(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> GpuArray:
        """See ResidentArray."""
        return GpuArray(cuda_context(self.index).array(shape, dtype), self.index)

    def assign(self, other: Any) -> None:
        """See ResidentArray."""
        backend = cuda_context(self.index).backend
        backend.copy_from(self.pointer, backend, other.pointer, other.nbytes)

    def copied(self) -> GpuArray:
        """See ResidentArray."""
        made = self.new(self.shape, self.dtype)
        made.assign(self)
        return made

    def sum(self, values: npt.NDArray[Any]) -> GpuArray:
        """See ResidentArray."""
        raise InvalidArgumentError(op="sum", argument="self", found=f"on {self.device}", legal="a library's array")

    def element(self, index: tuple[int, ...]) -> Any:
        """See ResidentArray."""
        return self.numpy()[index]


class Moved:
    """Calls of a function on one GPU with arguments that may be on another."""

    def __init__(self) -> None:
        self.ways: dict[tuple[str, str], str] = {}
        """Path of copies by source and target device."""

    def call(
        self, function: Callable[..., R], arguments: tuple[Any, ...], device: str, options: Mapping[str, Any]
    ) -> R:
        """Call `function(*arguments, device=device, **options)`; results go to the device of the first argument on
        another GPU. Raises the function's errors, and DeviceError if a copy fails."""
        _, on = numbered(device) or ("", 0)
        home: ForeignArray | None = None
        taken: list[Any] = []
        for value in arguments:
            found = _elsewhere(value, on)
            home = home or found
            taken.append(value if found is None else self._copied(found, on))
        made = function(*taken, device=device, **options)
        return made if home is None else self._back(made, home)

    def _copied(self, source: ForeignArray, on: int) -> GpuArray:
        if not source.contiguous:
            found = f"strided {source.strides} on {source.device}"
            raise InvalidArgumentError(op="spread", argument="tensors", found=found, legal="C-contiguous")
        target = GpuArray(cuda_context(on).array(source.shape, source.dtype), on)
        self._copy(source, source.index, target, on)
        return target

    def _back(self, made: Any, home: ForeignArray) -> Any:
        if isinstance(made, tuple):
            parts = [self._back(each, home) for each in made]
            return type(made)(*parts) if hasattr(made, "_fields") else tuple(parts)
        if not isinstance(made, GpuArray):
            return made
        target = home.new(made.shape, made.dtype)
        self._copy(made, made.index, target, home.index)
        return target.owned

    def _copy(self, source: DeviceArray, of: int, target: DeviceArray, on: int) -> None:
        self.ways[f"{DEVICE}:{of}", f"{DEVICE}:{on}"] = copy_between(source, of, target, on)


def _elsewhere(value: Any, on: int) -> ForeignArray | None:
    """A library's array on a GPU other than `on`, or None."""
    library = None if isinstance(value, np.ndarray) else library_of(value)
    if library is None or not value.shape:
        return None
    kind, index = value.__dlpack_device__()
    return foreign_array(library, value, index) if int(kind) == _GPU and index != on else None
