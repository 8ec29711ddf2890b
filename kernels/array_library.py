"""Other libraries of arrays: how their arrays are read where they lie, and made."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.kernels import threads
from tritmark.kernels.extensions import native


class ArrayOnDevice(NamedTuple):
    """Where an array lies in a device's memory, and how."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]
    """In bytes; () for C order."""
    pointer: int


class ArrayLibrary(Protocol):
    """A library, by what is done with its arrays."""

    writable: bool
    """Whether its users may have arrays written (JAX's may not)."""

    def host(self, value: Any) -> npt.NDArray[Any]:
        """The memory of an array that the CPU can read. Raises BufferError, TypeError, RuntimeError or ValueError where
        it is not handed out."""

    def there(self, value: Any) -> ArrayOnDevice:
        """Where an array on a GPU lies."""

    def given(self, array: npt.NDArray[Any]) -> Any:
        """A NumPy array as one of the library's."""

    def empty(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new array where another is, content undefined."""

    def copied(self, value: Any) -> Any:
        """A C-contiguous copy in memory of its own."""

    def assign(self, to: Any, value: Any) -> None:
        """Copy the elements of an array into another of the same shape and dtype, where arrays may be written."""

    def sum(self, value: Any, array: npt.NDArray[Any]) -> Any:
        """One of the library's arrays and a NumPy array, added."""


class TorchTensors:
    """torch.Tensor. Gradients do not go through: torch.ops.tritmark has them."""

    writable = True

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def host(self, value: Any) -> npt.NDArray[Any]:
        """See ArrayLibrary."""
        plain = value.detach()
        bfloat16 = plain.dtype is self._torch.bfloat16  # which NumPy has not
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
    """Within it a library that has a current device, as CuPy, works on that one; others are told by each call."""
    return device if hasattr(device, "__enter__") else nullcontext()


@cache
def _pytorch() -> TorchTensors:
    found = TorchTensors()
    threads.join_pytorch(native("pool"))
    return found


def library_of(value: Any) -> ArrayLibrary | None:
    """Whose array that is; None for NumPy's and for what is no array of a library that is known."""
    if isinstance(value, np.ndarray | np.generic) or not hasattr(value, "__dlpack_device__"):
        return None
    name = type(value).__module__.partition(".")[0]
    if name == "torch":
        return _pytorch()
    if hasattr(value, "__array_namespace__"):
        return ArrayApi(value.__array_namespace__())
    return ArrayApi(sys.modules[name]) if name == "cupy" else None  # older ones do not tell
