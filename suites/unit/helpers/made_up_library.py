"""A library of arrays on simulated GPUs with the part of the array API that CuPy has. Its current GPU is that of
`on_gpu`, and arrays are made there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.context import cuda_context, current_gpu, on_gpu


class MadeUpArray:
    """An array on a GPU; the host reads it only through `host`."""

    kind = 2

    def __init__(self, there: DeviceArray) -> None:
        self.index = current_gpu()
        # The library's own copies are not counted as tritmark's.
        copies = cuda_context().backend
        self.there = DeviceArray(copies, there.owner, there.pointer, there.shape, there.dtype, there.strides)
        self.shape = there.shape

    @property
    def device(self) -> Any:
        """As in CuPy: inside, it is the current one."""
        return on_gpu(self.index)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.index

    def __array_namespace__(self) -> Any:
        return NAMESPACE

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.there.__cuda_array_interface__

    def reshape(self, shape: tuple[int, ...]) -> MadeUpArray:
        with self.device:
            return MadeUpArray(self.there.view(shape)) if self.there.contiguous else asarray(self.host().reshape(shape))

    def __getitem__(self, index: Any) -> Any:
        return self.host()[index]

    def __setitem__(self, index: Any, values: MadeUpArray) -> None:
        assert index is Ellipsis
        self.there.write(values.host())

    def __add__(self, other: MadeUpArray) -> MadeUpArray:
        return asarray(self.host() + other.host())

    def item(self) -> Any:
        return self.host().item()

    def host(self) -> np.ndarray[Any, Any]:
        return self.there.numpy()


def asarray(values: np.ndarray[Any, Any]) -> MadeUpArray:
    return MadeUpArray(cuda_context().upload(values))


def apart(values: np.ndarray[Any, Any], way: str) -> MadeUpArray:
    """The same values at an address that is only a multiple of the element's size ("offset"), or in every second row
    ("strided")."""
    if way == "offset":
        flat = np.concatenate([np.zeros(1, values.dtype), values.reshape(-1)])
        return MadeUpArray(cuda_context().upload(flat).view(values.shape, offset=values.itemsize))
    rows = np.repeat(values, 2, axis=0)
    strides = (values.strides[0] * 2, *values.strides[1:])
    return MadeUpArray(cuda_context().upload(rows).view(values.shape, strides=strides))


def empty(shape: tuple[int, ...], dtype: Any) -> MadeUpArray:
    return MadeUpArray(cuda_context().array(shape, dtype))


NAMESPACE = SimpleNamespace(
    asarray=asarray,
    empty=empty,
    **{name: np.dtype(name) for name in ("float32", "float16", "int8", "uint8", "int32")},
)
