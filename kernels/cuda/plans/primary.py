"""The primary context of a GPU, shared with the library that owns the arrays, such as torch, through the driver alone.

PyCUDA keeps its own stack of contexts, and a context that it leaves current would change the device of a library that
asks the driver. Here the context is current only during a call, and the previous one is restored.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np

from tritmark.harness.errors import CompileError, DeviceError, DeviceUnavailableError
from tritmark.harness.machine import libcuda
from tritmark.harness.machine.gpu import DeviceInfo, device_info
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.driver.compile import compile_kernel
from tritmark.kernels.cuda.driver.handles import STATIC_LIMIT
from tritmark.kernels.cuda.driver.tensor_map import ENCODE
from tritmark.kernels.cuda.kernel import NONE_BAD, Kernel
from tritmark.kernels.cuda.plans.plan import NoCopies

# CUfunction_attribute, as cuda.h has them.
_MOST_THREADS, _SHARED, _LOCAL, _REGISTERS, _DYNAMIC = 0, 1, 3, 4, 8
_RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED."""
_LAUNCHING = ("cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuLaunchKernelEx")


class PrimaryContext:
    """A GPU's primary context, with the kernels that were loaded in it.

    Raises DeviceUnavailableError if the GPU does not exist, and libcuda.DriverError if the driver refuses.
    """

    def __init__(self, index: int) -> None:
        self.info: DeviceInfo = device_info(index)
        context = ctypes.c_void_p()
        libcuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), libcuda.integer("cuDeviceGet", index))
        self.handle = context.value or 0
        room = self._room(NONE_BAD.tobytes())
        self.bad = DeviceArray(NoCopies(), room, room.pointer, (1,), np.uint64)
        self._modules: dict[str, ctypes.c_void_p] = {}
        self._functions: dict[Kernel, PrimaryFunction] = {}

    def _room(self, content: bytes) -> PrimaryAllocation:
        """Device memory with this content."""
        pointer = ctypes.c_uint64()
        with self.current():
            libcuda.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(len(content)))
            libcuda.call("cuMemcpyHtoD_v2", pointer, content, ctypes.c_size_t(len(content)))
        return PrimaryAllocation(pointer.value, len(content))

    @property
    def driver(self) -> tuple[int, ...]:
        """Addresses of the driver's functions that a CudaPlan calls."""
        # Drivers before CUDA 12 have no maps; kernels here that take one need a newer driver anyway.
        return libcuda.addresses(*_LAUNCHING, ENCODE)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current for this thread, and allow calls that a capturing stream would refuse."""
        mode = ctypes.c_int(_RELAXED)
        libcuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        libcuda.call("cuCtxPushCurrent_v2", ctypes.c_void_p(self.handle))
        try:
            yield
        finally:
            libcuda.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
            libcuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def function(self, kernel: Kernel) -> PrimaryFunction:
        """The kernel, compiled for this GPU and loaded on first use. Raises CompileError, DeviceUnavailableError,
        DeviceError."""
        found = self._functions.get(kernel)
        if found is None:
            found = self._functions[kernel] = self._load(kernel)
        return found

    def prepared(self, kernel: Kernel, shared: int) -> int:
        """The handle of the kernel's function, ready for launches with so many bytes of dynamic shared memory."""
        function = self.function(kernel)
        if shared + function.shared > STATIC_LIMIT:
            function.allow(shared)
        return function.handle

    def _load(self, kernel: Kernel) -> PrimaryFunction:
        cubin = compile_kernel(kernel, self.info.arch)
        raw = ctypes.c_void_p()
        with self.current():
            module = self._modules.get(cubin.hash)
            if module is None:
                module = ctypes.c_void_p()
                try:
                    libcuda.call("cuModuleLoadData", ctypes.byref(module), cubin.code)
                except libcuda.DriverError as why:
                    raise DeviceUnavailableError(
                        f"the driver ({self.info.driver}) does not load {kernel.file}: {why}",
                        next_step="update the driver",
                    ) from None
                self._modules[cubin.hash] = module
            try:
                libcuda.call("cuModuleGetFunction", ctypes.byref(raw), module, kernel.name.encode())
            except libcuda.DriverError as why:
                raise CompileError(
                    f"{kernel.file} has no kernel {kernel.name} ({why})",
                    next_step='declare it extern "C" __global__ under that name',
                ) from None
        return PrimaryFunction(self, kernel, cubin.hash, raw)


@dataclass(frozen=True, slots=True)
class PrimaryAllocation:
    """A few bytes of device memory, kept for the life of the process."""

    pointer: int
    nbytes: int

    def free(self) -> None:
        """Does nothing."""


class PrimaryFunction:
    """A kernel that was loaded in a primary context."""

    def __init__(self, context: PrimaryContext, kernel: Kernel, code_hash: str, raw: ctypes.c_void_p) -> None:
        self._context = context
        self._raw = raw
        self.name = kernel.name
        self.code_hash = code_hash
        self.handle = raw.value or 0
        with context.current():
            self.most_threads, self.shared, self.local, self.registers = (
                libcuda.integer("cuFuncGetAttribute", each, raw)
                for each in (_MOST_THREADS, _SHARED, _LOCAL, _REGISTERS)
            )

    def allow(self, shared: int) -> None:
        """Let launches use so many bytes of dynamic shared memory. Raises DeviceError if the device has fewer."""
        with self._context.current():
            try:
                libcuda.call("cuFuncSetAttribute", self._raw, _DYNAMIC, shared)
            except libcuda.DriverError as why:
                raise DeviceError(
                    f"{self.name}: {shared} bytes of dynamic shared memory: {why}", next_step="use another kernel"
                ) from None

    def blocks_per_sm(self, threads: int, shared: int = 0) -> int:
        """Resident blocks per multiprocessor, as the driver reports them; 0 if no block fits."""
        limit = self._context.info.shared_per_block_optin
        if threads > self.most_threads or self.shared + shared > limit:
            return 0
        if self.shared + shared > STATIC_LIMIT:
            self.allow(shared)
        with self._context.current():
            return libcuda.integer(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", self._raw, threads, ctypes.c_size_t(shared)
            )


@cache
def primary_context(index: int) -> PrimaryContext:
    """The primary context of the GPU with that CUDA index, kept for the life of the process."""
    return PrimaryContext(index)
