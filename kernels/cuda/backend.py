"""The interface that runs CUDA kernels: a GPU through its driver, or the simulator. Launchers use only this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.kernels.cuda.kernel import Dim, Kernel

HostCopy = tuple[npt.NDArray[Any], int]
"""A contiguous host array, and the address on the device that it is copied to or from."""
RawLaunch = tuple[int, Dim, Dim, int, bytes]
"""Handle of a function, grid, block, bytes of dynamic shared memory, and the result of Backend.arguments."""


class DeviceFunction(Protocol):
    """A kernel, compiled for the device and loaded."""

    name: str
    registers: int
    """Registers per thread; 0 if not known (simulator)."""
    shared: int
    """Bytes of static shared memory."""
    local: int
    """Bytes of local memory per thread."""
    most_threads: int
    """Maximum number of threads per block, given the registers."""
    code_hash: str
    """SHA-256 of the binary that contains it."""
    handle: int
    """The driver's handle, or the simulator's entry point."""

    def blocks_per_sm(self, threads: int, shared: int = 0) -> int:
        """Resident blocks per multiprocessor with that many threads and bytes of dynamic shared memory, as the driver
        reports them."""


class Stream(Protocol):
    """Work that runs in order. As a context manager it waits for its work on exit."""

    handle: int

    def synchronize(self) -> None:
        """Wait until all work is done. Raises DeviceFaultError if a kernel failed."""

    def wait(self, event: Event) -> None:
        """Make later work wait for the event."""

    def __enter__(self) -> Stream: ...
    def __exit__(self, *problem: object) -> None: ...


class Event(Protocol):
    """A point in a stream."""

    def record(self, stream: Stream) -> None: ...
    def synchronize(self) -> None: ...
    def since(self, earlier: Event) -> float:
        """Nanoseconds from an earlier event; both must be complete."""


class Allocation(Protocol):
    """Device memory; freed by `free` or with the object."""

    @property
    def pointer(self) -> int:
        """Address on the device. Memory of the pool raises FreedMemoryError after it was freed."""

    @property
    def nbytes(self) -> int: ...

    def free(self) -> None: ...


class ArrayCopier(Protocol):
    """Copies contiguous arrays over its own lanes without Python calls in between; complete on return. For one caller
    at a time. Raises DeviceError if the device refuses a copy."""

    def send(self, pointer: int, values: npt.NDArray[Any]) -> None:
        """Copy to the device."""

    def fetch(self, pointer: int, into: npt.NDArray[Any]) -> None:
        """Copy from the device."""

    def round_trip(
        self,
        inputs: Sequence[HostCopy],
        launches: Sequence[RawLaunch],
        bad: int,
        outputs: Sequence[HostCopy],
        back: ArrayCopier,
    ) -> tuple[int, int, int, int]:
        """Copy inputs to the device, set the eight bytes at `bad` to NONE_BAD, and launch. If `bad` is unchanged, copy
        outputs back, over the lanes of `back` if all inputs are pinned. Pinned arrays need no lane. Returns `bad`, the
        number of copies in each direction, and the bytes of the copies back."""


class Backend(Protocol):
    """A device that is ready, made by kernels.cuda.context once per process. As a context manager it becomes the
    current device of the thread; its methods are faster inside."""

    simulated: bool
    info: DeviceInfo
    stream: Stream
    """The default stream."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *problem: object) -> None: ...

    def function(self, kernel: Kernel) -> DeviceFunction:
        """Compile (or take from the cache) and load. Raises CompileError, and DeviceUnavailableError if the compute
        capability is too low."""

    def arguments(self, function: DeviceFunction, args: Sequence[Any]) -> Any:
        """Arguments (NumPy scalars; pointers as np.uint64; maps as np.void), packed once for any number of
        launches."""

    def tensor_map(self, pointer: int, numbers: tuple[int, ...]) -> Any:
        """The tensor map of the matrix at that address from TensorMap.numbers, for `arguments`. Raises
        DeviceUnavailableError if the driver cannot make one."""

    def enqueue(
        self, function: DeviceFunction, grid: Dim, block: Dim, arguments: Any, shared: int, stream: Stream
    ) -> None:
        """Put one launch into a stream. Raises LaunchError if the device refuses it. The simulator runs it
        immediately."""

    def new_stream(self, *, apart: bool = False) -> Stream:
        """A new stream. With `apart` the stream and work outside of streams do not wait for each other; by default
        they do."""

    def new_event(self) -> Event: ...

    def allocate(self, nbytes: int) -> Allocation:
        """Memory aligned to 256 bytes, content undefined. Raises InsufficientMemoryError."""

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""

    def pinned(self, nbytes: int) -> npt.NDArray[Any]:
        """Host memory (uint8) that copies can access directly."""

    def is_pinned(self, values: npt.NDArray[Any]) -> bool:
        """Whether a contiguous array is in pinned memory of any origin, and its copies are faster for it."""

    def array_copier(self, lanes: int, piece: int) -> ArrayCopier | None:
        """A copier of whole arrays, `piece` bytes at a time over each lane; None if only `write` and `read` exist."""

    def write(self, pointer: int, values: npt.NDArray[Any], stream: Stream | None = None) -> None:
        """Copy to the device; complete on return unless a stream is given (then `values` must stay pinned memory)."""

    def read(self, pointer: int, into: npt.NDArray[Any], stream: Stream | None = None) -> None:
        """Copy from the device; complete on return unless a stream is given."""

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Stream | None = None) -> None:
        """Set bytes."""

    def synchronize(self) -> None:
        """Wait for all work. Raises DeviceFaultError."""

    def reaches(self, other: Any) -> bool:
        """Whether copies can come directly from the memory of another device's backend. Raises DeviceError."""

    def copy_from(self, pointer: int, other: Any, source: int, nbytes: int) -> None:
        """Copy directly from the memory of another device, after all earlier work of both; complete on return. Raises
        DeviceFaultError."""
