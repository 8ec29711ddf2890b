"""The NVIDIA driver's library, asked without any package and without making a context."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

LIBRARY = "libcuda.so.1"
_MEMORY_TYPE_AND_RANGE = 2, 11, 12
"""CU_POINTER_ATTRIBUTE_MEMORY_TYPE, _RANGE_START_ADDR and _RANGE_SIZE."""
_HOST = 1
"""CU_MEMORYTYPE_HOST."""


class DriverError(Exception):
    """The driver refused a question; `code` is its CUresult."""

    def __init__(self, function: str, code: int) -> None:
        self.code = code
        super().__init__(f"{function}: {words(code)} (CUDA error {code})")


@cache
def library() -> Any:
    """The library, loaded. Raises OSError where there is none."""
    return ctypes.CDLL(LIBRARY)


def call(function: str, *arguments: Any) -> None:
    """Call a function of the driver. Raises OSError where there is no driver, DriverError where it refuses."""
    loaded = library()
    try:
        code = int(getattr(loaded, function)(*arguments))
    except AttributeError:
        raise DriverError(function, TOO_OLD) from None
    if code:
        raise DriverError(function, code)


def addresses(*functions: str) -> tuple[int, ...]:
    """Where functions of the driver lie, for native code that calls them; 0 for one that it does not have. Raises
    OSError where there is no driver."""
    each = (getattr(library(), name, None) for name in functions)
    return tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 if function else 0 for function in each)


TOO_OLD = 36
"""CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER."""


def words(code: int) -> str:
    """What the driver says about a CUresult."""
    text = ctypes.c_char_p()
    try:
        library().cuGetErrorString(code, ctypes.byref(text))
    except (OSError, AttributeError):
        return "no words"
    return (text.value or b"no words").decode("utf-8", "replace")


def pinned_around(address: int) -> range:
    """The addresses of the pinned memory of the host that this one lies in; empty where it lies in none. Raises as
    `call` does."""
    kind, begin, nbytes = ctypes.c_uint(), ctypes.c_uint64(), ctypes.c_size_t()
    wanted = (ctypes.c_int * 3)(*_MEMORY_TYPE_AND_RANGE)
    into = (ctypes.c_void_p * 3)(*map(ctypes.addressof, (kind, begin, nbytes)))
    call("cuPointerGetAttributes", 3, wanted, into, ctypes.c_uint64(address))
    return range(begin.value, begin.value + nbytes.value) if kind.value == _HOST else range(0)


def integer(function: str, *arguments: Any) -> int:
    """What a function of the driver writes into the int that it takes first."""
    value = ctypes.c_int()
    call(function, ctypes.byref(value), *arguments)
    return value.value
