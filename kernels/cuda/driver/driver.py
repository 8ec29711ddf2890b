"""A GPU as the backend: PyCUDA on the device's primary context. cuda-bindings covers calls that PyCUDA lacks
(occupancy, parameters).

PyCUDA keeps a stack of contexts for each thread. The context of the first backend stays on the main thread's stack for
the life of the process. Other threads and backends enter a context by `with backend:`, which every method here does
itself. A thread that ends with a context on its stack would end the process.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import (
    CompileError,
    DeviceError,
    DeviceFaultError,
    DeviceUnavailableError,
    InsufficientMemoryError,
    LaunchError,
)
from tritmark.harness.machine import gpu, libcuda
from tritmark.kernels.cuda.driver import compile as compiler
from tritmark.kernels.cuda.driver import overlap
from tritmark.kernels.cuda.driver.handles import (
    DriverAllocation,
    DriverArrayCopier,
    DriverEvent,
    DriverFunction,
    DriverStream,
    raw_of,
)
from tritmark.kernels.cuda.driver.tensor_map import encoded
from tritmark.kernels.cuda.kernel import Dim, Kernel

if TYPE_CHECKING:
    from tritmark.kernels.cuda.backend import DeviceFunction, Stream

_GRID: Dim = ((1 << 31) - 1, 65535, 65535)
_BLOCK: Dim = (1024, 1024, 64)
"""Limits of every compute capability from 7.0."""
_ENABLED_BEFORE = 704
"""CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED."""
_CAPTURE = range(900, 920)
"""CUresults about stream capture: the call is not allowed now, but nothing failed."""

_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING, for which PyCUDA has no name."""


class _Entered(threading.local):
    """The backends whose contexts this thread has entered; the last one is current."""

    def __init__(self) -> None:
        self.backends: list[DriverBackend] = []


_ENTERED = _Entered()


class DriverBackend:
    """A GPU. As a context manager it makes its context current for the thread that enters it.

    Raises DeviceUnavailableError if there is no GPU or no context can be made.
    """

    simulated = False

    def __init__(self, index: int = 0) -> None:
        self._lost: DeviceError | None = None
        self.cuda, self.bindings = _packages(index)
        """The driver modules of PyCUDA and of cuda-bindings."""
        self.info = gpu.device_info(index)
        cuda = self.cuda
        try:
            cuda.init()
            self._context = cuda.Device(index).retain_primary_context()
            self._context.push()
        except cuda.MemoryError as why:
            raise gpu.busy(self.info, f"{why}, not even for a context") from None
        except cuda.Error as why:
            raise gpu.busy(self.info, str(why)) from None
        _ENTERED.backends.append(self)
        self._modules: dict[str, tuple[Any, Any]] = {}
        self._peers: dict[int, bool] = {}
        """By the number of another device, whether this one can access its memory."""
        self.buried: list[Any] = []
        """Objects that could not be freed because the context was lost."""
        self.last_kernel = ""
        """The function that was launched last."""
        import atexit

        atexit.register(self._leave, os.getpid())
        os.register_at_fork(after_in_child=self._forked)
        self.stream: Stream = self.new_stream()
        if threading.current_thread() is not threading.main_thread() or len(_ENTERED.backends) > 1:
            self.__exit__()

    def __enter__(self) -> DriverBackend:
        if self._lost is not None:
            # By attribute and not by class: at exit, globals may be gone.
            code = {"code": self._lost.code} if hasattr(self._lost, "code") else {}
            raise type(self._lost)(self._lost.found, next_step=self._lost.next_step, **code)
        entered = _ENTERED.backends
        if not entered or entered[-1] is not self:
            self._context.push()
        entered.append(self)
        return self

    def __exit__(self, *problem: object) -> None:
        entered = _ENTERED.backends
        entered.pop()
        if not entered or entered[-1] is not self:
            self.cuda.Context.pop()

    def function(self, kernel: Kernel) -> DriverFunction:
        """The kernel, compiled for this GPU and loaded. Raises CompileError, DeviceUnavailableError."""
        if not kernel.runs_on(self.info.capability):
            has = ".".join(map(str, self.info.capability))
            raise DeviceUnavailableError(
                f"{kernel.name} needs compute capability {kernel.needs} and {self.info.name} has {has}",
                next_step="let automatic selection choose a kernel",
            )
        with self:
            cubin, module, twin = self._loaded(kernel)
            try:
                raw = module.get_function(kernel.name)
            except self.cuda.Error as why:
                if self._broken():
                    self.fail(why, f"loading {kernel.name}")
                raise CompileError(
                    f"{kernel.file} has no kernel {kernel.name} ({why})",
                    next_step='declare it extern "C" __global__ under that name',
                ) from None
            return DriverFunction(self, kernel, cubin, raw, self.ask("cuModuleGetFunction", twin, kernel.name.encode()))

    def _loaded(self, kernel: Kernel) -> tuple[compiler.Cubin, Any, Any]:
        """The kernel's cubin, its module in PyCUDA, and a second module in cuda-bindings, because PyCUDA does not
        expose the handles of its functions."""
        if compiler.loaded_by_pycuda():
            from tritmark.kernels.cuda.driver.source_module import source_module

            module, cubin = self._taken(kernel, lambda: source_module(kernel, self.info.arch))
        else:
            cubin = compiler.compile_kernel(kernel, self.info.arch)
            if cubin.hash in self._modules:
                return (cubin, *self._modules[cubin.hash])
            module = self._taken(kernel, lambda: self.cuda.module_from_buffer(cubin.code), len(cubin.code))
        twin = self.ask("cuModuleLoadData", cubin.code)
        self._modules[cubin.hash] = module, twin
        return cubin, module, twin

    def _taken(self, kernel: Kernel, load: Callable[[], Any], nbytes: int = 0) -> Any:
        """The result of `load`. Raises DeviceUnavailableError if the driver refuses the code."""
        try:
            return load()
        except self.cuda.MemoryError as why:
            self.fail(why, f"loading {kernel.file}", nbytes)
        except self.cuda.Error as why:
            if self._broken():
                self.fail(why, f"loading {kernel.file}")
            raise DeviceUnavailableError(
                f"the driver ({self.info.driver}) does not load {kernel.file}, compiled by {compiler.compiler()} "
                f"for {self.info.arch}: {why}",
                next_step=f"update the driver, or set {compiler.NVCC} to the nvcc of an older toolkit",
            ) from None

    def arguments(self, function: DeviceFunction, args: Sequence[Any]) -> bytes:
        """Arguments (NumPy scalars; pointers as np.uint64; maps as np.void, before all others, so that each is
        aligned), laid out as the kernel's parameters.

        Raises TypeError if they do not fit the parameters, which the driver reports from CUDA 12.4. Raises LaunchError
        for a map if the driver does not report them.
        """
        for place, arg in enumerate(args):
            if not isinstance(arg, np.integer | np.floating | np.void):
                raise TypeError(
                    f"{function.name}: argument {place} is {type(arg).__name__}; legal: a NumPy integer, float or void"
                )
        assert isinstance(function, DriverFunction)
        taken = function.parameters(len(args))
        given = tuple(arg.dtype.itemsize for arg in args)
        if taken is None:
            if any(isinstance(arg, np.void) for arg in args):
                raise LaunchError(
                    f"the driver does not report the parameter offsets of {function.name}, which takes a map",
                    next_step="use CUDA 12.4 or newer",
                )
            return struct.pack("".join(arg.dtype.char for arg in args), *args)
        sizes = tuple(size for _, size in taken)
        if sizes != given:
            raise TypeError(f"{function.name} takes parameters of {sizes} bytes; found {given}")
        # At the driver's offsets: a gap may precede a parameter with an alignment of 64, such as a map, because the
        # parameter memory itself is not aligned to 64.
        laid_out = bytearray(max((offset + size for offset, size in taken), default=0))
        for arg, (offset, size) in zip(args, taken, strict=True):
            laid_out[offset : offset + size] = arg.tobytes()
        return bytes(laid_out)

    def tensor_map(self, pointer: int, numbers: tuple[int, ...]) -> Any:
        """The tensor map of the matrix at that address from TensorMap.numbers, for `arguments`. Raises
        DeviceUnavailableError if the driver cannot make one."""
        return encoded(pointer, numbers)

    def enqueue(
        self, function: DeviceFunction, grid: Dim, block: Dim, arguments: bytes, shared: int, stream: Stream
    ) -> None:
        """Put one launch into a stream. Raises LaunchError if the device refuses it."""
        assert isinstance(function, DriverFunction)
        assert isinstance(stream, DriverStream)
        with self:
            try:
                if shared > function.dynamic:
                    function.allow(shared)
                if function.overlaps:
                    overlap.launch(function.handle, grid, block, arguments, shared, stream.handle)
                else:
                    # PyCUDA's public calls end here. It is the only private name of PyCUDA in use (test_pycuda.py has
                    # its versions): on an H200's host it takes 6 us, a public call 14 us.
                    function.raw._launch_kernel(grid, block, arguments, shared, stream.raw)
            except (self.cuda.Error, OverflowError, libcuda.DriverError) as why:
                self._refused(why, function, grid, block, shared)
        self.last_kernel = function.name

    def new_stream(self, *, apart: bool = False) -> DriverStream:
        with self:
            return DriverStream(self, self.cuda.Stream(_NON_BLOCKING if apart else 0))

    def new_event(self) -> DriverEvent:
        with self:
            return DriverEvent(self, self.cuda.Event())

    def allocate(self, nbytes: int) -> DriverAllocation:
        """Memory from the driver, aligned to at least 256 bytes. Raises InsufficientMemoryError."""
        with self:
            try:
                return DriverAllocation(self, self.cuda.mem_alloc(nbytes), nbytes)
            except self.cuda.Error as why:
                self.fail(why, "an allocation", nbytes)

    def memory(self) -> tuple[int, int]:
        with self:
            free, total = self.cuda.mem_get_info()
            return int(free), int(total)

    def pinned(self, nbytes: int) -> npt.NDArray[Any]:
        with self:
            try:
                made: npt.NDArray[Any] = self.cuda.pagelocked_empty(nbytes, np.uint8)
            except self.cuda.MemoryError as why:
                raise DeviceError(
                    f"{nbytes} bytes of the host's memory cannot be pinned ({why})",
                    next_step="pin less at a time, or raise ulimit -l",
                ) from None
            return made

    def is_pinned(self, values: npt.NDArray[Any]) -> bool:
        begin = values.ctypes.data
        with self:
            try:
                pinned = libcuda.pinned_around(begin)
            except libcuda.DriverError as why:
                self.fail(why, "reading the type of an array's memory")
        return begin in pinned and begin + values.nbytes <= pinned.stop

    def array_copier(self, lanes: int, piece: int) -> DriverArrayCopier:
        return DriverArrayCopier(self, lanes, piece)

    def write(self, pointer: int, values: npt.NDArray[Any], stream: Stream | None = None) -> None:
        if not values.nbytes:
            return
        with self:
            try:
                if stream is None:
                    self.cuda.memcpy_htod(pointer, _bytes(values))
                else:
                    self.cuda.memcpy_htod_async(pointer, _bytes(values), raw_of(stream))
            except self.cuda.Error as why:
                self.fail(why, f"copying {values.nbytes} bytes to the device")

    def read(self, pointer: int, into: npt.NDArray[Any], stream: Stream | None = None) -> None:
        if not into.nbytes:
            return
        with self:
            try:
                if stream is None:
                    self.cuda.memcpy_dtoh(_bytes(into), pointer)
                else:
                    self.cuda.memcpy_dtoh_async(_bytes(into), pointer, raw_of(stream))
            except self.cuda.Error as why:
                self.fail(why, f"copying {into.nbytes} bytes from the device")

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Stream | None = None) -> None:
        if not nbytes:
            return
        with self:
            try:
                self.cuda.memset_d8_async(pointer, byte, nbytes, raw_of(stream or self.stream))
                if stream is None:
                    raw_of(self.stream).synchronize()
            except self.cuda.Error as why:
                self.fail(why, f"setting {nbytes} bytes")

    def synchronize(self) -> None:
        with self:
            try:
                self.cuda.Context.synchronize()
            except self.cuda.Error as why:
                self.fail(why, "waiting for the device")

    def reaches(self, other: DriverBackend) -> bool:
        found = self._peers.get(other.info.index)
        if found is None:
            found = self._peers[other.info.index] = self._enabled(other)
        return found

    def _enabled(self, other: DriverBackend) -> bool:
        """Whether the driver allows this device to access the other's memory from now on."""
        here, there = (libcuda.integer("cuDeviceGet", each.info.index) for each in (self, other))
        if not libcuda.integer("cuDeviceCanAccessPeer", here, there):
            return False
        with self:
            try:
                libcuda.call("cuCtxEnablePeerAccess", ctypes.c_void_p(other.handle()), 0)
            except libcuda.DriverError as why:
                return why.code == _ENABLED_BEFORE
        return True

    def handle(self) -> int:
        """The driver's handle of the context."""
        with self:
            return int(self.ask("cuCtxGetCurrent"))

    def copy_from(self, pointer: int, other: DriverBackend, source: int, nbytes: int) -> None:
        handles = self.handle(), other.handle()
        with self:
            try:
                self.ask("cuMemcpyPeer", pointer, handles[0], source, handles[1], nbytes)
            except DeviceError as why:
                self.fail(why, f"copying {nbytes} bytes from {other.info.name} {other.info.index}")
            self.synchronize()

    # Errors

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call the driver through cuda-bindings. Raises DeviceError if it refuses."""
        code, *values = getattr(self.bindings, function)(*arguments)
        if code:
            raise DeviceError(
                f"{function}: {getattr(code, 'name', code)}", next_step="update the driver and cuda-bindings"
            )
        return values[0] if len(values) == 1 else tuple(values)

    def _broken(self) -> int:
        """The driver's code if the context is lost, otherwise 0; every call then fails, including synchronization."""
        (code,) = self.bindings.cuCtxSynchronize()
        return 0 if int(code) in _CAPTURE else int(code)

    def fail(self, why: Exception, doing: str, nbytes: int = 0) -> NoReturn:
        """Raise the error for a refused call: InsufficientMemoryError, DeviceFaultError or DeviceError."""
        if isinstance(why, self.cuda.MemoryError):
            raise InsufficientMemoryError(
                what=doing,
                required=nbytes,
                available=self.memory()[0],
                next_step="free other arrays, or work on smaller parts",
            ) from None
        broken = self._broken()
        if broken:
            kernel = f"; the last launched kernel is {self.last_kernel}" if self.last_kernel else ""
            self._lost = DeviceFaultError(
                f"{self.info.name} broke off: {why}{kernel}",
                next_step="this process has lost its GPU context: start a new process, under compute-sanitizer to find "
                "the fault; CPU kernels still work in this process",
                code=broken,
            )
            raise self._lost from None
        raise DeviceError(f"{doing}: {why}", next_step="check the GPU with nvidia-smi, or use the CPU") from None

    def _refused(self, why: Exception, function: DriverFunction, grid: Dim, block: Dim, shared: int) -> NoReturn:
        """Raise the error for a refused launch: LaunchError with the limit, or DeviceFaultError from an earlier
        kernel."""
        if self._broken():
            self.fail(why, f"launching {function.name}")
        threads, info = block[0] * block[1] * block[2], self.info
        limits = (
            (
                not 1 <= threads <= function.most_threads,
                f"{threads} threads a block",
                f"1 to {function.most_threads}, which its {function.registers} registers a thread and its launch "
                "bounds allow",
            ),
            (
                function.shared + shared > info.shared_per_block_optin,
                f"{function.shared + shared} bytes of shared memory a block",
                f"at most {info.shared_per_block_optin}, which {info.name} has",
            ),
            (_outside(block, _BLOCK), f"block {block}", f"(1, 1, 1) to {_BLOCK}"),
            (_outside(grid, _GRID), f"grid {grid}", f"(1, 1, 1) to {_GRID}"),
        )
        for passed, found, legal in limits:
            if passed:
                raise LaunchError(f"{function.name}: {found}", next_step=f"use {legal}") from None
        asked = f"grid {grid}, block {block}, {shared} bytes of dynamic shared memory"
        raise LaunchError(
            f"{function.name}: {why} ({asked})", next_step="launch with fewer threads or less shared memory"
        ) from None

    def _forked(self) -> None:
        self._lost = DeviceUnavailableError(
            "this process was forked from one that uses the GPU", next_step="start workers by spawn, not by fork"
        )

    def _leave(self, pid: int) -> None:
        """Called at exit in the main thread. Objects that are still in the context are then freed silently."""
        self._lost = self._lost or DeviceUnavailableError("this process is ending", next_step="use the GPU before that")
        if pid == os.getpid():
            with suppress(self.cuda.Error):
                if self not in _ENTERED.backends:
                    self._context.push()
                self._context.detach()


def _packages(index: int) -> tuple[Any, Any]:
    """The driver modules of PyCUDA and cuda-bindings. Raises DeviceUnavailableError with the missing part, for the GPU
    of that number."""
    found = gpu.problem(index) or gpu.package_problem()
    if found is not None:
        raise found
    try:
        import pycuda.driver as cuda
        from cuda.bindings import driver as bindings
    except ImportError as why:
        raise gpu.import_problem(why) from None
    return cuda, bindings


def _bytes(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The same memory as bytes: bfloat16 has no buffer protocol."""
    return values.reshape(-1).view(np.uint8)


def _outside(found: Dim, most: Dim) -> bool:
    return any(not 1 <= size <= limit for size, limit in zip(found, most, strict=True))
