"""Copies of arrays over lanes by native code (cython_ext/cuda_copies.pyx), which calls the driver by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tritmark.harness.machine import libcuda
from tritmark.harness.machine.cpu import affinity
from tritmark.kernels.cpu import native

if TYPE_CHECKING:
    from tritmark.kernels.cuda.driver import DriverBackend

_COPYING = ("cuCtxSetCurrent", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize")
"""What CopyLanes calls."""


class DriverArrayCopier:
    """Lanes over which native code copies."""

    def __init__(self, backend: DriverBackend, lanes: int, piece: int) -> None:
        self._backend = backend
        self._streams = [(backend.new_stream(apart=True), backend.new_stream(apart=True)) for _ in range(lanes)]
        self._buffers = backend.pinned(2 * lanes * piece).reshape(lanes, 2, piece)
        each = [
            (tuple(stream.handle for stream in streams), tuple(buffer.ctypes.data for buffer in buffers))
            for streams, buffers in zip(self._streams, self._buffers, strict=True)
        ]
        driver = libcuda.addresses(*_COPYING)
        self._lanes = native("cuda_copies").CopyLanes(driver, backend.handle(), each, piece, sorted(affinity()))

    def send(self, pointer: int, values: npt.NDArray[Any]) -> None:
        with self._backend:
            self._took(self._lanes.send(values.ctypes.data, values.nbytes, pointer), "copying to the device")

    def fetch(self, pointer: int, into: npt.NDArray[Any]) -> None:
        with self._backend:
            self._took(self._lanes.fetch(into.ctypes.data, into.nbytes, pointer), "copying from the device")

    def _took(self, code: int, doing: str) -> None:
        if code:
            self._backend._fail(libcuda.DriverError(doing, code), doing)
