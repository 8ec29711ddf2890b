"""The CUDA contexts of this process, one per GPU in use: a backend, its memory pool, the loaded functions, and counts.

The current GPU is a variable of each thread: GPU 0 by default, the second GPU inside `on_gpu(1)`.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from threading import Lock, RLock
from typing import Any

import numpy.typing as npt

from tritmark.harness.errors import UsageError
from tritmark.harness.machine import gpu
from tritmark.harness.nearest import nearest
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.backend import Backend, DeviceFunction
from tritmark.kernels.cuda.kernel import Kernel
from tritmark.kernels.cuda.memory.memory import MemoryPool
from tritmark.kernels.cuda.memory.stats import PerformanceStats
from tritmark.kernels.cuda.memory.transfer import Transfers
from tritmark.kernels.native.cpu import variable

SELECT = "TRITMARK_CUDA"
"""Environment variable: "driver" (default) or "simulator"."""
_SELECT = SELECT.encode()
_BACKENDS = ("driver", "simulator")

ALONE = "TRITMARK_CUDA_ALONE"
"""Environment variable of processes that see only one GPU: its number among all GPUs."""
_ALONE = ALONE.encode()
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable of CUDA: the GPUs that a process sees, by number or UUID."""

_CURRENT: ContextVar[int] = ContextVar("tritmark_gpu", default=0)
_LOCK = RLock()


class CudaContext:
    """The shared state of all launches of this process on one GPU."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.stats = PerformanceStats()
        self.pool = MemoryPool(backend, self.stats)
        self.transfers = Transfers(backend, self.pool)
        self._functions: dict[Kernel, DeviceFunction] = {}
        self._loading = Lock()
        """Only one thread loads a kernel: a second module would be unloaded while its functions are in use."""

    def function(self, kernel: Kernel) -> DeviceFunction:
        """The kernel, compiled and loaded on first use. Raises CompileError, DeviceUnavailableError."""
        found = self._functions.get(kernel)
        if found is not None:
            return found
        with self._loading:
            if kernel not in self._functions:
                made = self._functions[kernel] = self.backend.function(kernel)
                cached = bool(getattr(made, "cached", False))  # the simulator's are always compiled
                self.stats.loaded += cached
                self.stats.compiled += not cached
            return self._functions[kernel]

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """A new array from the pool, content undefined. Raises InsufficientMemoryError."""
        return self.pool.array(shape, dtype)

    def upload(self, values: npt.NDArray[Any]) -> DeviceArray:
        """A copy of a NumPy array on the device."""
        return self.transfers.upload(values)


_CONTEXTS: dict[tuple[bool, int], CudaContext] = {}
"""By whether simulated, and by the number of the GPU in the simulator or the driver."""


def simulated() -> bool:
    """Whether TRITMARK_CUDA selects the simulator. Raises UsageError for an unknown value."""
    chosen = (variable(_SELECT) or "").strip().lower() or "driver"
    if chosen not in _BACKENDS:
        raise UsageError(f"{SELECT} is {chosen!r}; {nearest(chosen, _BACKENDS)}")
    return chosen == "simulator"


class _OnGpu:
    """See on_gpu. A class, because each call of a public function enters several."""

    __slots__ = ("_before", "_index")

    def __init__(self, index: int) -> None:
        self._index = index

    def __enter__(self) -> None:
        self._before: Token[int] = _CURRENT.set(self._index)

    def __exit__(self, *problem: object) -> None:
        _CURRENT.reset(self._before)


def on_gpu(index: int) -> AbstractContextManager[None]:
    """Inside, this thread's calls use the GPU of that number."""
    return _OnGpu(index)


def current_gpu() -> int:
    """The number of the GPU that this thread's calls use."""
    return _CURRENT.get()


def gpu_count() -> int:
    """Number of GPUs that this process may use; 0 without a working driver."""
    if simulated():
        from tritmark.kernels.cuda.simulator import backend

        return backend.gpu_count()
    reported = os.environ.get(ALONE, "").strip()
    if reported.isdecimal():  # the parent process saw at least so many
        return int(reported) + 1
    return 0 if gpu.driver_problem() is not None else gpu.device_count()


def driver_index(index: int) -> int:
    """The driver's number of the GPU in this process, which may see only that one."""
    reported = variable(_ALONE)
    return 0 if reported is not None and reported.strip() == str(index) else index


def in_use(index: int) -> bool:
    """Whether this process has a context on the GPU with this number in the driver. This avoids a call of the driver,
    after which a thread must wait for the GIL again."""
    return (False, index) in _CONTEXTS


def alone(index: int) -> dict[str, str]:
    """Environment variables for a process that sees only the GPU of that number, for any library."""
    reported = os.environ.get(VISIBLE)
    visible = reported.split(",")[index].strip() if reported is not None else str(index)
    return {ALONE: str(index)} | ({} if simulated() else {VISIBLE: visible})


def cuda_context(index: int | None = None) -> CudaContext:
    """The context of the GPU of that number, or of the current one, made on first use. Raises DeviceUnavailableError if
    the GPU does not exist."""
    chosen, simulator = current_gpu() if index is None else index, simulated()
    key = simulator, chosen if simulator else driver_index(chosen)
    with _LOCK:  # only one context per GPU
        if key not in _CONTEXTS:
            _CONTEXTS[key] = _new_context(*key)
        return _CONTEXTS[key]


def existing_context() -> CudaContext | None:
    """The context of the current GPU, or None if this process has not used that GPU yet."""
    simulator = simulated()
    return _CONTEXTS.get((simulator, current_gpu() if simulator else driver_index(current_gpu())))


def _new_context(simulated: bool, index: int) -> CudaContext:
    if simulated:
        from tritmark.kernels.cuda.simulator import SimulatorBackend

        return CudaContext(SimulatorBackend(index))
    from tritmark.kernels.cuda.driver.driver import DriverBackend

    return CudaContext(DriverBackend(index))
