"""Launches that may begin before the previous launch in the stream has ended (programmatic dependent launch), which
PyCUDA does not support."""

from __future__ import annotations

import ctypes

from tritmark.harness.machine import libcuda
from tritmark.kernels.cuda.kernel import Dim

_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_POINTER, _SIZE, _END = 1, 2, 0
"""CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END."""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


_OVERLAPS = _Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, (1,))


def launch(handle: int, grid: Dim, block: Dim, arguments: bytes, shared: int, stream: int) -> None:
    """Put a launch of the function into a stream of the current context. `arguments` are laid out as its parameters.

    Raises libcuda.DriverError if the driver refuses.
    """
    config = _Config(grid, block, shared, stream, ctypes.pointer(_OVERLAPS), 1)
    nbytes = ctypes.c_size_t(len(arguments))
    extra = (ctypes.c_void_p * 5)(
        _POINTER,
        ctypes.cast(ctypes.c_char_p(arguments), ctypes.c_void_p),
        _SIZE,
        ctypes.cast(ctypes.pointer(nbytes), ctypes.c_void_p),
        _END,
    )
    libcuda.call("cuLaunchKernelEx", ctypes.byref(config), ctypes.c_void_p(handle), None, extra)
