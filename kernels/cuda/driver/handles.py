"""Handles from a GPU's backend: loaded kernels, streams, events, memory, and lanes for native copies, each with
PyCUDA's object of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy.typing as npt

from tritmark.harness.errors import DeviceError
from tritmark.harness.machine import libcuda
from tritmark.harness.machine.cpu import affinity
from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.kernels.cuda.driver import compile as compiler
from tritmark.kernels.cuda.kernel import Kernel
from tritmark.kernels.native.cpu import native

if TYPE_CHECKING:
    from tritmark.kernels.cuda.backend import ArrayCopier, Event, HostCopy, RawLaunch, Stream

STATIC_LIMIT = 48 * 1024
"""Bytes of shared memory that a block may use by default."""
_COPYING = (
    "cuCtxSetCurrent",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamSynchronize",
    "cuLaunchKernel",
    "cuPointerGetAttributes",
    "cuMemsetD8Async",
)
"""The driver functions that CopyLanes calls."""


class HandleOwner(Protocol):
    """The parts of a backend that its handles need. As a context manager it makes its context current."""

    cuda: Any
    """PyCUDA's driver."""
    bindings: Any
    """The driver module of cuda-bindings."""
    info: DeviceInfo
    buried: list[Any]
    """Objects that could not be freed because the context was lost."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *problem: object) -> None: ...

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call the driver through cuda-bindings. Raises DeviceError if it refuses."""

    def fail(self, why: Exception, doing: str, nbytes: int = 0) -> NoReturn:
        """Raise the error for a refused call: InsufficientMemoryError, DeviceFaultError or DeviceError."""

    def handle(self) -> int:
        """The driver's handle of the context."""

    def new_stream(self, *, apart: bool = False) -> DriverStream: ...
    def pinned(self, nbytes: int) -> npt.NDArray[Any]: ...


class DriverHandle:
    """An object of the context. PyCUDA cannot free it in a thread that has not entered the context."""

    __slots__ = ("_backend", "raw")

    def __init__(self, backend: HandleOwner, raw: Any) -> None:
        self._backend = backend
        self.raw = raw

    def free(self, lost: type[Exception] = DeviceError) -> None:
        """Free the object. If the context is lost, the object is kept until the process ends, because PyCUDA would warn
        about each. `lost`, the error to catch, is a default argument because globals may be gone at exit."""
        try:
            with self._backend:
                self.raw = None
        except lost:
            self._backend.buried.append(self.raw)
            self.raw = None

    def __del__(self) -> None:
        if self.raw is not None:
            self.free()


class DriverFunction:
    """A loaded kernel."""

    def __init__(self, backend: HandleOwner, kernel: Kernel, cubin: compiler.Cubin, raw: Any, handle: Any) -> None:
        attribute = backend.cuda.function_attribute
        self._backend = backend
        self._handle = handle
        self.raw = raw
        self.name = kernel.name
        self.overlaps = kernel.overlaps_on(backend.info.capability)
        self.registers = int(raw.get_attribute(attribute.NUM_REGS))
        self.shared = int(raw.get_attribute(attribute.SHARED_SIZE_BYTES))
        self.local = int(raw.get_attribute(attribute.LOCAL_SIZE_BYTES))
        self.most_threads = int(raw.get_attribute(attribute.MAX_THREADS_PER_BLOCK))
        self.code_hash = cubin.hash
        self.cached = cubin.cached
        """Whether the cubin came from the cache."""
        self.handle = int(handle)
        self._parameters: dict[int, tuple[tuple[int, int], ...] | None] = {}
        self.dynamic = STATIC_LIMIT - self.shared
        """Bytes of dynamic shared memory that a launch may use so far."""

    def allow(self, shared: int) -> None:
        """Let launches use so many bytes of dynamic shared memory. Raises PyCUDA's LogicError if the device has
        fewer."""
        cuda, backend = self._backend.cuda, self._backend
        self.raw.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
        attribute = backend.bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        backend.ask("cuFuncSetAttribute", self._handle, attribute, shared)
        self.dynamic = shared

    def blocks_per_sm(self, threads: int, shared: int = 0) -> int:
        """Resident blocks per multiprocessor, as the driver reports them; 0 if no block fits."""
        with self._backend as backend:
            if threads > self.most_threads or self.shared + shared > backend.info.shared_per_block_optin:
                return 0
            if shared > self.dynamic:
                self.allow(shared)
            return int(backend.ask("cuOccupancyMaxActiveBlocksPerMultiprocessor", self._handle, threads, shared))

    def parameters(self, given: int) -> tuple[tuple[int, int], ...] | None:
        """Offset and bytes of each parameter; None if the driver does not report them (before CUDA 12.4).

        Before 13.1 it does not report their number either. Then only `given` parameters are queried, because a query
        past the last is an error that compute-sanitizer reports. Missing arguments at the end are then not detected
        here (the simulator detects them). The result is cached.
        """
        if given not in self._parameters:
            self._parameters[given] = self._parameters_of(given)
        return self._parameters[given]

    def _parameters_of(self, given: int) -> tuple[tuple[int, int], ...] | None:
        bindings = self._backend.bindings
        try:
            try:
                code, count = bindings.cuFuncGetParamCount(self._handle)
            except (AttributeError, RuntimeError):
                code, count = 1, 0
            found = []
            for place in range(given if code else count):
                wrong, offset, size = bindings.cuFuncGetParamInfo(self._handle, place)
                if wrong:
                    break
                found.append((int(offset), int(size)))
        except (AttributeError, RuntimeError):  # bindings or a driver without the function
            return None
        return tuple(found)


class DriverStream(DriverHandle):
    """A stream. As a context manager it waits for its work on exit."""

    __slots__ = ("handle",)

    def __init__(self, backend: HandleOwner, raw: Any) -> None:
        super().__init__(backend, raw)
        self.handle = int(raw.handle)

    def synchronize(self) -> None:
        with self._backend:
            try:
                self.raw.synchronize()
            except self._backend.cuda.Error as why:
                self._backend.fail(why, "waiting for a stream")

    def wait(self, event: Event) -> None:
        with self._backend:
            self.raw.wait_for_event(raw_of(event))

    def __enter__(self) -> DriverStream:
        return self

    def __exit__(self, *problem: object) -> None:
        self.synchronize()


class DriverEvent(DriverHandle):
    """A point in a stream."""

    __slots__ = ()

    def record(self, stream: Stream) -> None:
        with self._backend:
            try:
                self.raw.record(raw_of(stream))
            except self._backend.cuda.Error as why:
                self._backend.fail(why, "recording an event")

    def synchronize(self) -> None:
        with self._backend:
            try:
                self.raw.synchronize()
            except self._backend.cuda.Error as why:
                self._backend.fail(why, "waiting for an event")

    def since(self, earlier: Event) -> float:
        with self._backend:
            try:
                return float(self.raw.time_since(raw_of(earlier))) * 1e6
            except self._backend.cuda.Error as why:
                self._backend.fail(why, "reading two events")


class DriverAllocation(DriverHandle):
    """Device memory; freed by `free` or with the object."""

    __slots__ = ("nbytes", "pointer")

    def __init__(self, backend: HandleOwner, raw: Any, nbytes: int) -> None:
        super().__init__(backend, raw)
        self.pointer = int(raw)
        self.nbytes = nbytes


class DriverArrayCopier:
    """Lanes for copies by native code."""

    def __init__(self, backend: HandleOwner, lanes: int, piece: int) -> None:
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

    def round_trip(
        self,
        inputs: Sequence[HostCopy],
        launches: Sequence[RawLaunch],
        bad: int,
        outputs: Sequence[HostCopy],
        back: ArrayCopier,
    ) -> tuple[int, int, int, int]:
        assert isinstance(back, DriverArrayCopier)
        with self._backend:
            there, results = ([_addressed(each) for each in copies] for copies in (inputs, outputs))
            code, found, up, down, nbytes = self._lanes.round_trip(there, launches, bad, results, back._lanes)
            self._took(code, "copying there, launching and copying back")
        return found, up, down, nbytes

    def _took(self, code: int, doing: str) -> None:
        if code:
            self._backend.fail(libcuda.DriverError(doing, code), doing)


def raw_of(held: object) -> Any:
    """PyCUDA's object of a handle."""
    assert isinstance(held, DriverHandle)
    return held.raw


def _addressed(copy: HostCopy) -> tuple[int, int, int]:
    """The copy as CopyLanes takes it: address, bytes, the device's pointer."""
    values, pointer = copy
    return values.ctypes.data, values.nbytes, pointer
