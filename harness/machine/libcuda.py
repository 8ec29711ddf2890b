"""Calls the NVIDIA driver's library through ctypes, without a package and without creating a context."""

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
    """A driver call failed; `code` is its CUresult."""

    def __init__(self, function: str, code: int) -> None:
        self.code = code
        super().__init__(f"{function}: {words(code)} (CUDA error {code})")


@cache
def library() -> Any:
    """The loaded library. Raises OSError if there is none."""
    return ctypes.CDLL(LIBRARY)


def call(function: str, *arguments: Any) -> None:
    """Call a function of the driver. Raises OSError if there is no driver, DriverError if the call fails."""
    loaded = library()
    try:
        code = int(getattr(loaded, function)(*arguments))
    except AttributeError:
        raise DriverError(function, TOO_OLD) from None
    if code:
        raise DriverError(function, code)


def addresses(*functions: str) -> tuple[int, ...]:
    """Addresses of driver functions, for native code; 0 for a missing function. Raises OSError if there is no
    driver."""
    each = (getattr(library(), name, None) for name in functions)
    return tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 if function else 0 for function in each)


TOO_OLD = 36
"""CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER."""


def words(code: int) -> str:
    """The driver's text for a CUresult."""
    text = ctypes.c_char_p()
    try:
        library().cuGetErrorString(code, ctypes.byref(text))
    except (OSError, AttributeError):
        return "no words"
    return (text.value or b"no words").decode("utf-8", "replace")


def pinned_around(address: int) -> range:
    """The address range of the pinned host memory that contains `address`; empty if none does. Raises like `call`."""
    kind, begin, nbytes = ctypes.c_uint(), ctypes.c_uint64(), ctypes.c_size_t()
    wanted = (ctypes.c_int * 3)(*_MEMORY_TYPE_AND_RANGE)
    into = (ctypes.c_void_p * 3)(*map(ctypes.addressof, (kind, begin, nbytes)))
    call("cuPointerGetAttributes", 3, wanted, into, ctypes.c_uint64(address))
    return range(begin.value, begin.value + nbytes.value) if kind.value == _HOST else range(0)


def integer(function: str, *arguments: Any) -> int:
    """Call a driver function that writes an int to its first argument, and return this int."""
    value = ctypes.c_int()
    call(function, ctypes.byref(value), *arguments)
    return value.value
