"""A fake device for the tests of memory, copies and batches, which runs the work of a stream as late as possible, or at
random.

Kernels are Python functions. Every access is checked: it must be within allocated memory. So a buffer that is refilled
too early, an array that is freed too early, and an event without a wait all give an incorrect result or an
AssertionError. Several threads may use it: streams run one at a time. Tests of kernels use the simulator instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock
from typing import Any

import numpy as np

from tritmark.harness.errors import InsufficientMemoryError, LaunchError
from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.kernels.cuda.kernel import Kernel
from tritmark.kernels.cuda.memory.blocks import ALIGNMENT

INFO = DeviceInfo(
    index=0,
    name="a made-up device",
    uuid="SIMULATOR",
    capability=(9, 0),
    memory=1 << 26,
    l2=1 << 20,
    sms=2,
    warp=32,
    threads_per_block=1024,
    threads_per_sm=2048,
    blocks_per_sm=32,
    registers_per_block=65536,
    registers_per_sm=65536,
    shared_per_block=48 << 10,
    shared_per_block_optin=227 << 10,
    shared_per_sm=228 << 10,
    memory_clock_hz=0,
    memory_bus_bits=0,
    clock_hz=0,
    driver="",
)


class Stream:
    handle = 0

    def __init__(self, backend: Device) -> None:
        self.backend = backend
        self.queue: list[Callable[[], None]] = []
        self.done = 0

    def put(self, work: Callable[[], None]) -> None:
        with self.backend.lock:
            self.queue.append(work)
            self.backend.progress()

    def run_to(self, position: int) -> None:
        with self.backend.lock:
            while self.done < position:
                self.done += 1
                self.queue[self.done - 1]()

    def synchronize(self) -> None:
        self.run_to(len(self.queue))

    def wait(self, event: Event) -> None:
        self.put(event.synchronize)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *problem: object) -> None:
        self.synchronize()


class Event:
    def __init__(self) -> None:
        self.at: tuple[Stream, int] | None = None

    def record(self, stream: Stream) -> None:
        with stream.backend.lock:
            stream.put(lambda: None)
            self.at = stream, len(stream.queue)

    def synchronize(self) -> None:
        assert self.at is not None, "an event that was never recorded"
        self.at[0].run_to(self.at[1])

    def since(self, earlier: Event) -> float:
        for event in (self, earlier):
            assert event.at is not None
            assert event.at[0].done >= event.at[1], "an event that is not complete"
        return 1000.0


class Allocation:
    def __init__(self, device: Device, nbytes: int, shift: int) -> None:
        self.raw = np.full(nbytes + 2 * ALIGNMENT, 0xCD, np.uint8)
        base = self.raw.ctypes.data
        self.pointer = -(-base // ALIGNMENT) * ALIGNMENT + shift
        self.nbytes = nbytes
        self.device = device
        device.live[self.pointer] = self

    def free(self) -> None:
        assert self.device.live.pop(self.pointer, None) is self, "freed twice on the device"
        self.raw[:] = 0xDD
        self.device.graveyard.append(self.raw)  # a late access finds it and can be distinguished


class Function:
    registers = shared = local = 0
    most_threads = 1024
    code_hash = "0" * 64
    handle = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def blocks_per_sm(self, threads: int, shared: int = 0) -> int:
        return 1


class Device:
    """Backend. With `seed` None everything runs as late as possible; otherwise some waiting work runs at random."""

    simulated = True
    info = INFO

    def __init__(self, memory: int = 1 << 26, seed: int | None = None) -> None:
        self.lock = RLock()
        self.total = memory
        self.live: dict[int, Allocation] = {}
        self.graveyard: list[np.ndarray] = []
        self.streams: list[Stream] = []
        self.pinned_memory: list[np.ndarray] = []
        self.random = None if seed is None else random.Random(seed)
        self.kernels: dict[str, Callable[..., None]] = {}
        self.refused: set[str] = set()
        self.shift = 0
        """Planted misalignment of the addresses from `allocate`."""
        self.allocations = 0
        """Number of allocations."""
        self.launched: list[tuple[str, int]] = []
        """Name and stream (number) of each launch, in the order of submission."""
        self.stream = self.new_stream()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *problem: object) -> None: ...

    def progress(self) -> None:
        if self.random:
            for stream in self.random.sample(self.streams, len(self.streams)):
                stream.run_to(self.random.randint(stream.done, len(stream.queue)))

    def function(self, kernel: Kernel) -> Function:
        return Function(kernel.name)

    def arguments(self, function: Function, args: Sequence[Any]) -> Any:
        return tuple(args)

    def enqueue(self, function: Function, grid: Any, block: Any, arguments: Any, shared: int, stream: Stream) -> None:
        if function.name in self.refused:
            raise LaunchError(f"{function.name} is refused", next_step="nothing")
        self.launched.append((function.name, self.streams.index(stream)))
        stream.put(partial(self.kernels[function.name], *arguments))

    def new_stream(self, *, apart: bool = False) -> Stream:
        self.streams.append(Stream(self))
        return self.streams[-1]

    def new_event(self) -> Event:
        return Event()

    @property
    def used(self) -> int:
        return sum(each.nbytes for each in self.live.values())

    def allocate(self, nbytes: int) -> Allocation:
        free = self.total - self.used
        if nbytes > free:
            raise InsufficientMemoryError(what="an allocation", required=nbytes, available=free, next_step="nothing")
        self.allocations += 1
        return Allocation(self, nbytes, self.shift)

    def memory(self) -> tuple[int, int]:
        return self.total - self.used, self.total

    def pinned(self, nbytes: int) -> np.ndarray:
        raw = np.full(nbytes + ALIGNMENT, 0xEE, np.uint8)
        at = -raw.ctypes.data % ALIGNMENT
        made = raw[at : at + nbytes]
        self.pinned_memory.append(made)
        return made

    def is_pinned(self, values: np.ndarray) -> bool:
        begin = values.ctypes.data
        return any(
            each.ctypes.data <= begin and begin + values.nbytes <= each.ctypes.data + each.nbytes
            for each in self.pinned_memory
        )

    def at(self, pointer: int, nbytes: int) -> np.ndarray:
        """The bytes at an address. Raises AssertionError unless all of them are in one live allocation."""
        for each in self.live.values():
            if each.pointer <= pointer and pointer + nbytes <= each.pointer + each.nbytes:
                begin = pointer - each.raw.ctypes.data
                return each.raw[begin : begin + nbytes]
        raise AssertionError(f"{nbytes} bytes at {pointer:#x} are not allocated")

    def array_copier(self, lanes: int, piece: int) -> None:
        """None, so Python copies."""

    def write(self, pointer: int, values: np.ndarray, stream: Stream | None = None) -> None:
        def work() -> None:
            self.at(int(pointer), values.nbytes)[:] = values.reshape(-1).view(np.uint8)

        work() if stream is None else stream.put(work)

    def read(self, pointer: int, into: np.ndarray, stream: Stream | None = None) -> None:
        def work() -> None:
            into.reshape(-1).view(np.uint8)[:] = self.at(int(pointer), into.nbytes)

        work() if stream is None else stream.put(work)

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Stream | None = None) -> None:
        self.at(pointer, nbytes)[:] = byte

    def synchronize(self) -> None:
        for stream in self.streams:
            stream.synchronize()
