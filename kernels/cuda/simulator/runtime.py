"""Python interface of the simulator's runtime (runtime.cpp)."""

from __future__ import annotations

import ctypes
from functools import cache
from threading import RLock
from typing import Any

from tritmark.kernels.cuda.simulator import toolchain

LOCK = RLock()
"""Held by launches and by changes of allocations, because the runtime's state is for one thread."""


@cache
def library() -> Any:
    """The compiled runtime with typed functions."""
    loaded = ctypes.CDLL(str(toolchain.runtime()))
    u64, pointer = ctypes.c_uint64, ctypes.c_void_p
    for name, result, arguments in (
        ("begin", u64, (u64,)),
        ("allocate", None, (u64, u64, ctypes.c_int)),
        ("written", None, (u64, u64)),
        ("free", None, (u64, u64)),
        ("trace", None, (ctypes.c_int, u64)),
        ("records", pointer, (pointer,)),
        ("dynamic_shared", u64, ()),
        ("module", None, (pointer, pointer, pointer)),
        ("launch", ctypes.c_int, (pointer, pointer)),
    ):
        function = loaded[f"tritmark_{name}"]
        function.restype, function.argtypes = result, arguments
        setattr(loaded, f"tritmark_{name}", function)
    return loaded
