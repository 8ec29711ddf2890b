"""What runs CUDA kernels: a GPU through its driver, or the simulator. Launchers see only this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.kernels.cuda.kernel import Dim, Kernel

HostCopy = tuple[npt.NDArray[Any], int]
"""A contiguous array of the host's memory, and the address on the device that it is copied to or from."""
RawLaunch = tuple[int, Dim, Dim, int, bytes]
"""Handle of a function, grid, block, bytes of dynamic shared memory, and what Backend.arguments gave."""


class DeviceFunction(Protocol):
    """A kernel, compiled for the device and loaded."""

    name: str
    registers: int
    """Registers a thread uses; 0 where not known (simulator)."""
    shared: int
    """Bytes of static shared memory."""
    local: int
    """Bytes of local memory a thread uses."""
    most_threads: int
    """Threads of a block, at most, given the registers."""
    code_hash: str
    """SHA-256 of the binary that holds it."""
    handle: int
    """The driver's handle (the simulator's entry point)."""

    def blocks_per_sm(self, threads: int, shared: int = 0) -> int:
        """Blocks of that many threads and bytes of dynamic shared memory that one multiprocessor holds at a time,
        told by the driver."""


class Stream(Protocol):
    """Work in order. A context manager: leaving it waits for what was put in."""

    handle: int

    def synchronize(self) -> None:
        """Wait until it is empty. Raises DeviceFaultError where a kernel in it broke."""

    def wait(self, event: Event) -> None:
        """Let what comes later wait for the event."""

    def __enter__(self) -> Stream: ...
    def __exit__(self, *problem: object) -> None: ...


class Event(Protocol):
    """A point in a stream."""

    def record(self, stream: Stream) -> None: ...
    def synchronize(self) -> None: ...
    def since(self, earlier: Event) -> float:
        """Nanoseconds between two recorded events, both complete."""


class Allocation(Protocol):
    """Device memory; it goes back when `free` is called or the object is gone."""

    @property
    def pointer(self) -> int:
        """Address on the device. Memory of the pool raises FreedMemoryError once it was given back."""

    @property
    def nbytes(self) -> int: ...

    def free(self) -> None: ...


class ArrayCopier(Protocol):
    """Copies contiguous arrays over lanes of its own, without Python in between; complete on return. One caller at a
    time. Raises DeviceError where the device refuses a copy."""

    def send(self, pointer: int, values: npt.NDArray[Any]) -> None:
        """To the device."""

    def fetch(self, pointer: int, into: npt.NDArray[Any]) -> None:
        """From the device."""

    def round_trip(
        self,
        inputs: Sequence[HostCopy],
        launches: Sequence[RawLaunch],
        bad: int,
        outputs: Sequence[HostCopy],
        back: ArrayCopier,
    ) -> tuple[int, int, int, int]:
        """Copy inputs there, set the eight bytes at `bad` to NONE_BAD and launch; where they are that still, copy
        outputs back, over the lanes of `back` where all inputs are pinned. Pinned arrays need no lane. Returns what is
        at `bad`, the copies there and back, and the bytes of the latter."""


class Backend(Protocol):
    """A device that is ready. Made by kernels.cuda.context, one in a process. As a context manager it is the one that
    this thread is for: its methods are quicker within it."""

    simulated: bool
    info: DeviceInfo
    stream: Stream
    """The stream that is used where none is named."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *problem: object) -> None: ...

    def function(self, kernel: Kernel) -> DeviceFunction:
        """Compile (or take from the cache) and load. Raises CompileError, DeviceUnavailableError for too low a
        capability."""

    def arguments(self, function: DeviceFunction, args: Sequence[Any]) -> Any:
        """Arguments (NumPy scalars; pointers as np.uint64; maps as np.void), packed once for any number of
        launches."""

    def tensor_map(self, pointer: int, numbers: tuple[int, ...]) -> Any:
        """The map of the matrix at that address with TensorMap.numbers, as `arguments` takes it. Raises
        DeviceUnavailableError where the driver makes none."""

    def enqueue(
        self, function: DeviceFunction, grid: Dim, block: Dim, arguments: Any, shared: int, stream: Stream
    ) -> None:
        """Put one launch into a stream. Raises LaunchError where the device refuses it; the simulator runs it at
        once."""

    def new_stream(self, *, apart: bool = False) -> Stream:
        """`apart`: copies and launches outside of any stream do not wait for it, nor it for them, as they do unless
        told."""

    def new_event(self) -> Event: ...

    def allocate(self, nbytes: int) -> Allocation:
        """Memory aligned to 256 bytes, content undefined. Raises InsufficientMemoryError."""

    def memory(self) -> tuple[int, int]:
        """Bytes free and in total."""

    def pinned(self, nbytes: int) -> npt.NDArray[Any]:
        """Host memory (uint8) that copies can go to and come from without a detour."""

    def is_pinned(self, values: npt.NDArray[Any]) -> bool:
        """Whether a contiguous array lies in such memory, whoever pinned it, and its copies gain by that."""

    def array_copier(self, lanes: int, piece: int) -> ArrayCopier | None:
        """What copies whole arrays, so many bytes at a time over each lane; None where only `write` and `read` can."""

    def write(self, pointer: int, values: npt.NDArray[Any], stream: Stream | None = None) -> None:
        """Copy to the device; complete on return unless a stream is given (then `values` must be pinned and stay)."""

    def read(self, pointer: int, into: npt.NDArray[Any], stream: Stream | None = None) -> None:
        """Copy from the device; complete on return unless a stream is given."""

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Stream | None = None) -> None:
        """Set bytes."""

    def synchronize(self) -> None:
        """Wait for everything. Raises DeviceFaultError."""

    def reaches(self, other: Any) -> bool:
        """Whether copies come here right from the memory of another device's backend. Raises DeviceError."""

    def copy_from(self, pointer: int, other: Any, source: int, nbytes: int) -> None:
        """Copy from the memory of another device that this one reaches, behind all that both were given before;
        complete on return. Raises DeviceFaultError."""
