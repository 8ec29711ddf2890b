"""A PyCUDA without a GPU, which reproduces the errors of the real one."""

# ruff: noqa: N802 (the names of PyCUDA and of the driver)
from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np

from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.kernels.cuda.kernel import Kernel


def kernel(name: str, file: str = "test/test.cu", **more: Any) -> Kernel:
    fields: dict[str, Any] = {"file": file, "name": name, "threads": 256, "registers": 64}
    return Kernel(**fields | more)


class Error(Exception):
    pass


class LogicError(Error):
    pass


class LaunchFailedError(Error):
    pass


class RuntimeFailedError(Error):
    pass


class OutOfMemoryError(Error):
    pass


class Raw:
    """Any object from PyCUDA."""

    handle = 77

    def __init__(self, cuda: FakeCuda, name: str = "") -> None:
        self.cuda = cuda
        self.name = name
        cuda.needs_context()
        cuda.alive += 1

    def __del__(self) -> None:
        self.cuda.alive -= 1
        if not self.cuda.stack.contexts:
            self.cuda.leaked.append(self.name)

    def __int__(self) -> int:
        return 0x7000

    def synchronize(self) -> None:
        self.cuda.answer("cuStreamSynchronize")

    def record(self, stream: Raw) -> None:
        self.cuda.answer("cuEventRecord")

    def wait_for_event(self, event: Raw) -> None:
        self.cuda.answer("cuStreamWaitEvent")

    def time_since(self, earlier: Raw) -> float:
        self.cuda.answer("cuEventElapsedTime")
        return 1.5

    def get_function(self, name: str) -> Raw:
        if "absent" in name:
            raise LogicError("cuModuleGetFunction failed: named symbol not found")
        return Raw(self.cuda, name)

    def get_attribute(self, attribute: str) -> int:
        return {"NUM_REGS": 40, "SHARED_SIZE_BYTES": 1024, "LOCAL_SIZE_BYTES": 0, "MAX_THREADS_PER_BLOCK": 256}[
            attribute
        ]

    def set_attribute(self, attribute: str, value: int) -> None:
        self.cuda.raised.append((attribute, value))

    def _launch_kernel(self, grid: Any, block: Any, arguments: bytes, shared: int, stream: Raw) -> None:
        self.cuda.answer("cuLaunchKernel")
        if any(size > 1 << 32 for size in grid):
            raise OverflowError("bad numeric conversion: positive overflow")
        if np.prod(block) > 256 or 0 in grid or shared > 231 * 1024:
            raise LogicError("cuLaunchKernel failed: invalid argument")
        self.cuda.launched.append((self.name, grid, block, arguments, shared))


class FakeCuda:
    """pycuda.driver and cuda.bindings.driver in one. `refusals` has the error of each failing driver function."""

    Error, LogicError, LaunchError, RuntimeError, MemoryError = (
        Error,
        LogicError,
        LaunchFailedError,
        RuntimeFailedError,
        OutOfMemoryError,
    )
    function_attribute = SimpleNamespace(
        **{
            name: name
            for name in (
                "NUM_REGS",
                "SHARED_SIZE_BYTES",
                "LOCAL_SIZE_BYTES",
                "MAX_THREADS_PER_BLOCK",
                "MAX_DYNAMIC_SHARED_SIZE_BYTES",
            )
        }
    )
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)

    class Stack(threading.local):
        contexts = 0

    def __init__(self) -> None:
        self.refusals: dict[str, Exception] = {}
        self.alive = 0
        self.leaked: list[str] = []
        self.launched: list[Any] = []
        self.raised: list[Any] = []
        self.lost = 0
        self.stack = self.Stack()
        self.Context = SimpleNamespace(synchronize=lambda: self.answer("cuCtxSynchronize"), pop=self.pop)

    def answer(self, function: str) -> None:
        self.needs_context()
        if function in self.refusals:
            raise self.refusals[function]

    def needs_context(self) -> None:
        if not self.stack.contexts:
            raise LogicError("explicit_context_dependent failed: invalid device context - no currently active context?")

    def push(self) -> None:
        self.stack.contexts += 1

    def pop(self) -> None:
        self.stack.contexts -= 1

    detach = pop

    def init(self) -> None:
        pass

    def Device(self, index: int) -> FakeCuda:
        return self

    def retain_primary_context(self) -> FakeCuda:
        if "cuDevicePrimaryCtxRetain" in self.refusals:
            raise self.refusals["cuDevicePrimaryCtxRetain"]
        return self

    def Stream(self, flags: int = 0) -> Raw:
        return Raw(self, "stream")

    def Event(self) -> Raw:
        return Raw(self, "event")

    def mem_alloc(self, nbytes: int) -> Raw:
        self.answer("cuMemAlloc")
        return Raw(self, "memory")

    def mem_get_info(self) -> tuple[int, int]:
        return 1000, 2000

    def pagelocked_empty(self, nbytes: int, dtype: Any) -> Any:
        self.answer("cuMemHostAlloc")
        return np.empty(nbytes, dtype)

    def memcpy_htod(self, pointer: int, values: Any) -> None:
        self.answer("cuMemcpyHtoD")

    def memcpy_dtoh(self, into: Any, pointer: int) -> None:
        self.answer("cuMemcpyDtoH")

    def module_from_buffer(self, code: bytes) -> Raw:
        self.answer("cuModuleLoadDataEx")
        return Raw(self, "module")

    # cuda-bindings

    def cuCtxSynchronize(self) -> tuple[int]:
        return (self.lost,)

    def cuModuleLoadData(self, code: bytes) -> tuple[int, int]:
        return 0, 5

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[int, int]:
        return 0, 6

    def cuFuncGetParamCount(self, function: int) -> tuple[int, int]:
        return 0, 2

    def cuFuncGetParamInfo(self, function: int, index: int) -> tuple[int, int, int]:
        sizes = (4, 8)
        return (0, 8 * index, sizes[index]) if index < len(sizes) else (1, 0, 0)

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> tuple[int]:
        return (0,)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared: int) -> tuple[int, int]:
        return 0, 2048 // threads


def info(**more: Any) -> DeviceInfo:
    fields: dict[str, Any] = dict.fromkeys(DeviceInfo.__dataclass_fields__, 1024) | {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-0",
        "capability": (9, 0),
        "shared_per_block_optin": 227 * 1024,
        "driver": "CUDA 12.9",
    }
    return DeviceInfo(**fields | more)
