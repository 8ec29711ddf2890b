"""Array libraries other than NumPy: read their arrays in place, and create new ones."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.kernels.native import threads
from tritmark.kernels.native.extensions import native


class ArrayOnDevice(NamedTuple):
    """Address and layout of an array in a device's memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]
    """Strides in bytes; () for C order."""
    pointer: int


class ArrayLibrary(Protocol):
    """The operations that tritmark needs of an array library."""

    writable: bool
    """Whether arrays may be written in place (not in JAX)."""

    def host(self, value: Any) -> npt.NDArray[Any]:
        """A view of an array in memory that the CPU can read. Raises BufferError, TypeError, RuntimeError or
        ValueError if the library does not export it."""

    def there(self, value: Any) -> ArrayOnDevice:
        """The address and layout of an array on a GPU."""

    def given(self, array: npt.NDArray[Any]) -> Any:
        """A NumPy array as an array of the library."""

    def empty(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new array on the device of `like`, content undefined."""

    def copied(self, value: Any) -> Any:
        """A C-contiguous copy in memory of its own."""

    def assign(self, to: Any, value: Any) -> None:
        """Copy the elements of `value` into `to`, of the same shape and dtype. Requires `writable`."""

    def sum(self, value: Any, array: npt.NDArray[Any]) -> Any:
        """An array of the library plus a NumPy array."""


class TorchTensors:
    """torch.Tensor. Gradients do not propagate: torch.ops.tritmark supports them."""

    writable = True

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def host(self, value: Any) -> npt.NDArray[Any]:
        """See ArrayLibrary."""
        plain = value.detach()
        bfloat16 = plain.dtype is self._torch.bfloat16  # NumPy has no such dtype
        found: npt.NDArray[Any] = (plain.view(self._torch.int16) if bfloat16 else plain).numpy()
        return found.view(named_dtype("bfloat16")) if bfloat16 else found

    def there(self, value: Any) -> ArrayOnDevice:
        """See ArrayLibrary."""
        dtype = named_dtype(str(value.dtype).removeprefix("torch."))
        strides = tuple(each * dtype.itemsize for each in value.stride())
        return ArrayOnDevice(tuple(value.shape), dtype, strides, value.data_ptr())

    def given(self, array: npt.NDArray[Any]) -> Any:
        """See ArrayLibrary."""
        if array.dtype.name == "bfloat16":
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def empty(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """See ArrayLibrary."""
        return self._torch.empty(shape, dtype=getattr(self._torch, dtype.name), device=like.device)

    def copied(self, value: Any) -> Any:
        """See ArrayLibrary."""
        return value.detach().clone(memory_format=self._torch.contiguous_format)

    def assign(self, to: Any, value: Any) -> None:
        """See ArrayLibrary."""
        to.copy_(value.detach())

    def sum(self, value: Any, array: npt.NDArray[Any]) -> Any:
        """See ArrayLibrary."""
        return value.add_(self.given(array).to(value.device))


class ArrayApi:
    """A library with the functions of the array API, such as CuPy and JAX."""

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace
        self.writable = getattr(namespace, "__name__", "").partition(".")[0] != "jax"

    def host(self, value: Any) -> npt.NDArray[Any]:
        """See ArrayLibrary."""
        found: npt.NDArray[Any] = np.from_dlpack(value)
        return found

    def there(self, value: Any) -> ArrayOnDevice:
        """See ArrayLibrary."""
        reported = value.__cuda_array_interface__
        pointer, _ = reported["data"]
        return ArrayOnDevice(
            tuple(reported["shape"]), np.dtype(reported["typestr"]), tuple(reported.get("strides") or ()), int(pointer)
        )

    def given(self, array: npt.NDArray[Any]) -> Any:
        """See ArrayLibrary."""
        return self._namespace.asarray(array)

    def empty(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """See ArrayLibrary."""
        device = getattr(like, "device", None)
        with _entered(device):
            named = {} if device is None or hasattr(device, "__enter__") else {"device": device}
            return self._namespace.empty(shape, dtype=getattr(self._namespace, dtype.name), **named)

    def copied(self, value: Any) -> Any:
        """See ArrayLibrary."""
        made = self.empty(value, tuple(value.shape), self.there(value).dtype)
        with _entered(getattr(value, "device", None)):
            made[...] = value
        return made

    def assign(self, to: Any, value: Any) -> None:
        """See ArrayLibrary."""
        with _entered(getattr(to, "device", None)):
            to[...] = value

    def sum(self, value: Any, array: npt.NDArray[Any]) -> Any:
        """See ArrayLibrary."""
        with _entered(getattr(value, "device", None)):
            return value + self.given(array)


def _entered(device: Any) -> AbstractContextManager[Any]:
    """Make `device` the current device of a library that has one, such as CuPy. Others take it in each call."""
    return device if hasattr(device, "__enter__") else nullcontext()


@cache
def _pytorch() -> TorchTensors:
    found = TorchTensors()
    threads.join_pytorch(native("pool"))
    return found


def library_of(value: Any) -> ArrayLibrary | None:
    """The library of an array; None for a NumPy array and for an object of no known library."""
    if isinstance(value, np.ndarray | np.generic) or not hasattr(value, "__dlpack_device__"):
        return None
    name = type(value).__module__.partition(".")[0]
    if name == "torch":
        return _pytorch()
    if hasattr(value, "__array_namespace__"):
        return ArrayApi(value.__array_namespace__())
    return ArrayApi(sys.modules[name]) if name == "cupy" else None  # older CuPy has no __array_namespace__
