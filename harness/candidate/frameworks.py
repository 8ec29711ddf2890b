"""The arrays that a Python function asks for, over the memory in which the harness judges: nothing is copied on the
way in."""

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
    """Whose arrays a function takes and returns."""

    kind: str
    """What one of its arrays is called in messages."""

    def begin(self, threads: int) -> None:
        """Allow so many threads."""

    def array(self, value: Any) -> Any:
        """Its array over the memory of a NumPy array, or of a device's."""

    def is_one(self, value: Any) -> bool:
        """Whether that is one of its arrays, with the values in memory: no subclass, which could compute them later."""

    def copy(self, into: Any, value: Any) -> None:
        """Copy one of its arrays into another of the same shape and dtype."""

    def wait(self) -> None:
        """Return when all that was begun is done."""


class Numpy:
    """NumPy arrays; on a device with a memory of its own what has `__cuda_array_interface__`, and must be written in
    place."""

    kind = "NumPy array"

    started = 0
    """Threads that libraries of linear algebra have started in this process for what they were told. They stay."""

    def begin(self, threads: int) -> None:
        for library in _blas():
            # To be told a number, even the one that it has, makes OpenBLAS start its threads.
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
            raise TypeError(f"a {type(into).__name__} is written in place, and the function returns an array")
        into[...] = value

    def wait(self) -> None: ...


def _threads() -> int:
    """Of this process, in any language; 0 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


@cache
def _blas() -> Sequence[Any]:
    """The libraries of linear algebra that are loaded when this is first asked, as NumPy's and SciPy's are."""
    from threadpoolctl import ThreadpoolController

    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


class _Unmarked:
    """The memory of an array, not marked as read-only."""

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
            # DLPack has no word for memory that may only be read; what is written there all the same faults.
            value = np.asarray(_Unmarked(value)).view(value.dtype)
        if value.dtype.name == "bfloat16":
            # DLPack has a code for it that NumPy does not know.
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
"""By the name that the decorator has for it. Triton's kernels take torch's tensors."""


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            f"the kernel takes {name}'s arrays, and {name} cannot be imported ({error}); legal: pip install {name}"
        ) from None
