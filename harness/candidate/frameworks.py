"""The arrays that a Python function takes, as views of the harness's memory: inputs are not copied."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import UsageError


class Framework(Protocol):
    """The library whose arrays a function takes and returns."""

    kind: str
    """The name of its array type in messages."""

    def begin(self, threads: int) -> None:
        """Allow this number of threads."""

    def array(self, value: Any) -> Any:
        """An array over the memory of a NumPy array or a device array."""

    def is_one(self, value: Any) -> bool:
        """Whether the value is one of its arrays. A subclass is not, because it could compute values later."""

    def copy(self, into: Any, value: Any) -> None:
        """Copy one array into another of the same shape and dtype."""

    def wait(self) -> None:
        """Wait until all started work is complete."""


class Numpy:
    """NumPy arrays. On a device with its own memory: objects with `__cuda_array_interface__`, written in place."""

    kind = "NumPy array"

    started = 0
    """Threads that linear algebra libraries started in this process because of `begin`. They never end."""

    def begin(self, threads: int) -> None:
        for library in _blas():
            # Setting any thread count, even the current one, makes OpenBLAS start its threads.
            if library.num_threads != threads:
                before = _threads()
                library.set_num_threads(threads)
                Numpy.started += max(0, _threads() - before)

    def array(self, value: Any) -> Any:
        return value

    def is_one(self, value: Any) -> bool:
        return type(value) is np.ndarray or isinstance(value, np.generic)

    def copy(self, into: Any, value: Any) -> None:
        if not isinstance(into, np.ndarray):
            raise TypeError(
                f"the function returns an array for an output of type {type(into).__name__}; legal: to write this "
                "output in place, as a parameter"
            )
        into[...] = value

    def wait(self) -> None: ...


def _threads() -> int:
    """Number of native threads of this process; 0 if the system does not report it."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


@cache
def _blas() -> Sequence[Any]:
    """The linear algebra libraries, such as NumPy's and SciPy's, that are loaded at the first call."""
    from threadpoolctl import ThreadpoolController

    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


class _Unmarked:
    """The memory of an array without its read-only mark."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        flat = array.view(f"u{array.itemsize}")
        self.__array_interface__ = {**flat.__array_interface__, "data": (array.ctypes.data, False)}


class Torch:
    """torch.Tensor, through DLPack on the host and __cuda_array_interface__ on a device."""

    kind = "torch.Tensor"

    def __init__(self) -> None:
        self._torch = _imported("torch")
        self._on_device = False

    def begin(self, threads: int) -> None:
        self._torch.set_num_threads(threads)

    def array(self, value: Any) -> Any:
        torch = self._torch
        if not isinstance(value, np.ndarray):
            self._on_device = True
            return torch.as_tensor(value, device="cuda")
        if not value.flags.writeable:
            # DLPack cannot mark memory as read-only. A write to it still faults.
            value = np.asarray(_Unmarked(value)).view(value.dtype)
        if value.dtype.name == "bfloat16":
            # NumPy does not know DLPack's code for bfloat16.
            return torch.from_dlpack(value.view(np.int16)).view(torch.bfloat16)
        return torch.from_dlpack(value)

    def is_one(self, value: Any) -> bool:
        return type(value) is self._torch.Tensor

    def copy(self, into: Any, value: Any) -> None:
        into.copy_(value)

    def wait(self) -> None:
        if self._on_device:
            self._torch.cuda.synchronize()


class Cupy:
    """cupy.ndarray, through __cuda_array_interface__."""

    kind = "cupy.ndarray"

    def __init__(self) -> None:
        self._cupy = _imported("cupy")

    def begin(self, threads: int) -> None: ...

    def array(self, value: Any) -> Any:
        return self._cupy.asarray(value)

    def is_one(self, value: Any) -> bool:
        return type(value) is self._cupy.ndarray

    def copy(self, into: Any, value: Any) -> None:
        into[...] = value

    def wait(self) -> None:
        self._cupy.cuda.Device().synchronize()


FRAMEWORKS: dict[str, type[Numpy] | type[Torch] | type[Cupy]] = {"numpy": Numpy, "torch": Torch, "cupy": Cupy}
"""Frameworks by their name in the decorator. Triton kernels take torch tensors."""


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            f"the kernel takes arrays of {name}, and {name} cannot be imported ({error}); next: pip install {name}"
        ) from None
