"""The CUDA context of this process: one backend, its memory pool, the functions that were loaded, and what was done."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy.typing as npt

from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.backend import Backend, DeviceFunction
from tritmark.kernels.cuda.kernel import Kernel
from tritmark.kernels.cuda.memory import MemoryPool
from tritmark.kernels.cuda.stats import PerformanceStats
from tritmark.kernels.cuda.transfer import Transfers

SELECT = "TRITMARK_CUDA"
"""Environment variable: "driver" (default) or "simulator"."""
_BACKENDS = ("driver", "simulator")


class CudaContext:
    """What all launches of this process share."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.stats = PerformanceStats()
        self.pool = MemoryPool(backend, self.stats)
        self.transfers = Transfers(backend, self.pool, self.stats)
        self._functions: dict[Kernel, DeviceFunction] = {}

    def function(self, kernel: Kernel) -> DeviceFunction:
        """The kernel, compiled and loaded at its first use. Raises CompileError, DeviceUnavailableError."""
        found = self._functions.get(kernel)
        if found is None:
            found = self._functions[kernel] = self.backend.function(kernel)
            cached = bool(getattr(found, "cached", False))  # the simulator's are always compiled
            self.stats.loaded += cached
            self.stats.compiled += not cached
        return found

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """A new array from the pool, content undefined. Raises InsufficientMemoryError."""
        return self.pool.array(shape, dtype)

    def upload(self, values: npt.NDArray[Any]) -> DeviceArray:
        """A copy of a NumPy array on the device."""
        return self.transfers.upload(values)


def simulated() -> bool:
    """Whether TRITMARK_CUDA asks for the simulator. Raises UsageError for a value that does not exist."""
    chosen = os.environ.get(SELECT, "").strip().lower() or "driver"
    if chosen not in _BACKENDS:
        raise UsageError(f"{SELECT} is {chosen!r}; {nearest(chosen, _BACKENDS)}")
    return chosen == "simulator"


def cuda_context() -> CudaContext:
    """The context of this process, made at its first use. Raises DeviceUnavailableError where there is no GPU."""
    return _context(simulated())


@cache
def _context(simulated: bool) -> CudaContext:
    if simulated:
        from tritmark.kernels.cuda.simulator import SimulatorBackend

        return CudaContext(SimulatorBackend())
    from tritmark.kernels.cuda.driver import DriverBackend

    return CudaContext(DriverBackend())
