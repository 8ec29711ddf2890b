"""Proxies for memory and launches in a worker, so that judging does not depend on where a candidate runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tritmark.harness.measure.buffers import DEVICE_ALIGNMENT, Uncounted
from tritmark.harness.spec import Arrays, Axes, Device, Launch, Proof, Variant
from tritmark.harness.worker import tasks
from tritmark.harness.worker.shared import PAGE, Edge, SharedBlock, pages, view
from tritmark.harness.worker.tasks import Handle, RunReply

if TYPE_CHECKING:
    from tritmark.harness.worker.process import WorkerProcess

_MOST_POOLED = 64 << 20
"""The most bytes of blocks that are kept for reuse: enough for a small trial, too few for the largest arrays."""


_COMMON = 8 << 20
"""Bytes of device memory that small buffers share."""


class Caller(Protocol):
    """The interface that proxies call: a worker with its own process; see workers.Isolated."""

    @property
    def process(self) -> WorkerProcess | None:
        """The current process."""

    @property
    def alive(self) -> bool:
        """Whether there is a process."""

    def number(self) -> int:
        """A new number for a buffer or a launch."""

    def drop_buffer(self, number: int) -> None:
        """The parent no longer needs this buffer."""

    def drop_launch(self, number: int) -> None:
        """The parent no longer needs this launch."""

    def call(self, what: str, task: Callable[..., Any], *args: Any) -> Any:
        """See workers.Worker."""


class Buffer:
    """A proxy for a buffer of the worker, by number. When this object is deleted, the buffer is freed or reused.

    It begins at byte `start` of the worker's memory with that number; `block` is this memory if it is shared.
    `give_back` takes the number and the block.
    """

    def __init__(
        self,
        number: int,
        nbytes: int,
        give_back: Callable[[int, SharedBlock | None], None],
        block: SharedBlock | None = None,
        start: int = 0,
    ) -> None:
        self.number = number
        self.nbytes = nbytes
        self.block = block
        self.start = start
        self._give_back = give_back

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """The parent's own view of shared memory; it can always be written."""
        assert self.block is not None
        return self.block.bytes[self.start : self.start + self.nbytes]

    def __int__(self) -> int:
        return self.number

    def __del__(self) -> None:
        self._give_back(self.number, self.block)


class SharedMemory:
    """Host memory shared with a worker: see Memory. Every buffer ends, or begins, at a guard page.

    Blocks are reused, by size, edge and `writable`: a file, a mapping and a message for each array cost more than most
    runs. A reused block keeps its old contents, also beyond the bytes of the buffer.
    """

    cache: int | None = None

    def __init__(self, worker: Caller) -> None:
        self.worker = worker
        self.shared = self
        self._process: WorkerProcess | None = None
        self._free: dict[tuple[int, Edge, bool], list[tuple[int, SharedBlock]]] = {}
        self._kept = 0

    def available(self) -> int:
        """See Memory."""
        from tritmark.harness.machine.memory import available

        return available()

    def allocate(self, nbytes: int, edge: Edge = "end", *, writable: bool = True) -> Buffer:
        """See Memory. `edge` is the end at the guard page. If not `writable`, a write of the worker is a segmentation
        fault; NumPy raises where it knows that the array is read-only."""
        if self._process is not self.worker.process or not self.worker.alive:
            self._free.clear()
            self._kept = 0
        capacity = _capacity(nbytes)
        free = self._free.get((capacity, edge, writable))
        if free:
            number, block = free.pop()
            self._kept -= capacity
        else:
            block = SharedBlock(capacity, edge, writable=writable)
            number = self.worker.number()
            self.worker.call("attaching memory", tasks.attach, number, block)
            block.close()
            self._process = self.worker.process
        return Buffer(
            number, nbytes, partial(self._back, self._process), block, 0 if edge == "start" else capacity - nbytes
        )

    def _back(self, process: WorkerProcess | None, number: int, block: SharedBlock | None) -> None:
        assert block is not None
        if process is not self.worker.process:
            return
        if block.nbytes > _MOST_POOLED - self._kept:
            self.worker.drop_buffer(number)
            return
        self._kept += block.nbytes
        self._free.setdefault((block.nbytes, block.edge, block.writable), []).append((number, block))

    def view(
        self,
        buffer: Buffer,
        offset: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        strides: tuple[int, ...] | None = None,
    ) -> Handle:
        """See Memory."""
        return Handle(buffer, offset, shape, np.dtype(dtype), strides)

    def write(self, array: Buffer | Handle, values: npt.NDArray[Any]) -> None:
        """See Memory; `array` is a buffer or a view of one."""
        _bytes(array)[...] = values.reshape(-1).view(np.uint8)

    def read(self, array: Buffer | Handle, into: npt.NDArray[Any]) -> None:
        """See Memory; `array` is a buffer or a view of one."""
        into.reshape(-1).view(np.uint8)[...] = _bytes(array)

    def watch(self) -> Uncounted:
        """See Memory. Not counted here; the worker counts, see validate.memory."""
        return Uncounted()


class RemoteMemory:
    """The memory of a device that the worker works on: see Memory.

    Small buffers share one buffer of the worker, so that one copy transfers them all. If an access outside of an
    allocation `traps`, as in a simulator, each buffer is a separate allocation.
    """

    def __init__(self, worker: Caller, *, traps: bool) -> None:
        self.worker = worker
        self.traps = traps
        self.shared = SharedMemory(worker)
        """Host memory for staging copies."""
        self._process: WorkerProcess | None = None
        self._common: Buffer | None = None
        self._used = 0
        self._alive = 0

    @property
    def cache(self) -> int | None:
        """See Memory."""
        cache: int | None = self.worker.call("describing its device", tasks.describe)[0]
        return cache

    def available(self) -> int:
        """See Memory."""
        return int(self.worker.call("describing its device", tasks.describe)[1])

    def allocate(self, nbytes: int) -> Buffer:
        """See Memory."""
        if self.traps:
            return self._own(nbytes)
        if self._common is None or self._process is not self.worker.process or not self.worker.alive:
            self._common = self._own(_COMMON)
            self._process = self.worker.process
            self._used = self._alive = 0
        if self._used + nbytes > _COMMON:
            return self._own(nbytes)
        found = Buffer(self._common.number, nbytes, partial(self._back, self._process), start=self._used)
        self._used += -(-nbytes // DEVICE_ALIGNMENT) * DEVICE_ALIGNMENT
        self._alive += 1
        return found

    def _own(self, nbytes: int) -> Buffer:
        buffer = Buffer(self.worker.number(), nbytes, lambda number, block: self.worker.drop_buffer(number))
        self.worker.call("allocating memory", tasks.allocate, buffer.number, nbytes)
        return buffer

    def _back(self, process: WorkerProcess | None, number: int, block: SharedBlock | None) -> None:
        if process is self._process:
            self._alive -= 1
            if not self._alive:
                self._used = 0

    def view(
        self,
        buffer: Buffer,
        offset: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        strides: tuple[int, ...] | None = None,
    ) -> Handle:
        """See Memory."""
        return Handle(buffer, offset, shape, np.dtype(dtype), strides)

    def write(self, array: Buffer | Handle, values: npt.NDArray[Any]) -> None:
        """See Memory."""
        self._copy([(array, values)], to_device=True)

    def read(self, array: Buffer | Handle, into: npt.NDArray[Any]) -> None:
        """See Memory."""
        self._copy([(array, into)], to_device=False)

    def write_all(self, pairs: Sequence[tuple[Buffer, npt.NDArray[Any]]]) -> None:
        """`write` for several whole buffers, in one message. Bytes between two buffers may change."""
        self._copy(pairs, to_device=True)

    def read_all(self, pairs: Sequence[tuple[Buffer, npt.NDArray[Any]]]) -> None:
        """`read` for several whole buffers, in one message."""
        self._copy(pairs, to_device=False)

    def watch(self) -> Uncounted:
        """See Memory. Not counted here; the worker counts, see validate.memory."""
        return Uncounted()

    def _copy(self, pairs: Sequence[tuple[Buffer | Handle, npt.NDArray[Any]]], *, to_device: bool) -> None:
        copies, places, end = self._copies(pairs)
        staging = self.shared.allocate(max(1, end))
        parts = [
            (staging.bytes[begin : begin + values.nbytes], values)
            for begin, (_, values) in zip(places, pairs, strict=True)
        ]
        if to_device:
            for staged, values in parts:
                staged[...] = values.reshape(-1).view(np.uint8)
            self.worker.call("copying to its device", _write, copies, _flat(staging))
        else:
            self.worker.call("copying from its device", _read, copies, _flat(staging))
            for staged, values in parts:
                values.reshape(-1).view(np.uint8)[...] = staged

    def _copies(
        self, pairs: Sequence[tuple[Buffer | Handle, npt.NDArray[Any]]]
    ) -> tuple[tuple[Copy, ...], list[int], int]:
        """The copies, where each array begins in the staging buffer, and the length of that buffer."""
        common = self._common
        whole = [
            array
            for array, _ in pairs
            if isinstance(array, Buffer) and common is not None and array.number == common.number
        ]
        if common is not None and len(whole) == len(pairs) == self._alive:
            begin = min(array.start for array in whole)
            end = max(array.start + array.nbytes for array in whole)
            handle = Handle(common, begin, (end - begin,), np.dtype(np.uint8))
            return ((handle, 0, end - begin),), [array.start - begin for array in whole], end - begin
        copies, places, end = [], [], 0
        for array, values in pairs:
            places.append(end)
            copies.append((_handle(array), end, values.nbytes))
            end += values.nbytes
        return tuple(copies), places, end


Copy = tuple[Handle, int, int]
"""An array in device memory, and its bytes in the staging buffer: begin and length."""


def _write(site: Any, copies: tuple[Copy, ...], staging: Handle) -> None:
    staged = tasks.resolve(site, staging)
    for handle, begin, nbytes in copies:
        tasks.write(site, handle, staged[begin : begin + nbytes])


def _read(site: Any, copies: tuple[Copy, ...], staging: Handle) -> None:
    staged = tasks.resolve(site, staging)
    for handle, begin, nbytes in copies:
        tasks.read(site, handle, staged[begin : begin + nbytes])


def _flat(buffer: Buffer) -> Handle:
    return Handle(buffer, 0, (buffer.nbytes,), np.dtype(np.uint8))


def _handle(array: Buffer | Handle) -> Handle:
    return _flat(array) if isinstance(array, Buffer) else array


def _bytes(array: Buffer | Handle) -> npt.NDArray[np.uint8]:
    if isinstance(array, Buffer):
        return array.bytes
    return view(array.buffer.bytes, array.offset, array.shape, array.dtype, array.strides).reshape(-1).view(np.uint8)


def _capacity(nbytes: int) -> int:
    """Bytes of the block for a buffer: whole pages, in steps of a quarter of the next lower power of two. Similar sizes
    share blocks, and at most a quarter of a block is unused."""
    needed = pages(nbytes)
    step = max(1, 1 << max(0, needed.bit_length() - 3))
    return -(-needed // step) * step * PAGE


class RemoteLaunch:
    """A proxy for a Launch in the worker. The message for its first run also binds it."""

    pointer: int | None = None

    def __init__(self, worker: Caller, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> None:
        self._worker = worker
        self._number = worker.number()
        self._arrays = inputs, outputs
        self._binding: tuple[Any, ...] | None = (dict(inputs), dict(outputs), dict(axes), threads)
        self._told = RunReply("", 0, 0, -1)
        self._process: WorkerProcess | None = None

    def run(self) -> None:
        """See Launch. Raises CandidateError, WorkerError."""
        self._told = self._asked("a run", tasks.run)

    def run_many(self, runs: int, into: Mapping[str, Buffer], poison: Mapping[str, Buffer]) -> tuple[RunReply, ...]:
        """Run `runs` times in one message. Returns the reply of each run.

        After each run, every output that `into` names is appended to its buffer there and then filled with the bytes of
        its `poison`. The buffers come from the memory's `shared`: `into` holds `runs` times the bytes of a C-contiguous
        output, `poison` once. Raises CandidateError, WorkerError.
        """
        copied = tuple((self._arrays[1][name], _flat(buffer), _flat(poison[name])) for name, buffer in into.items())
        reported: tuple[RunReply, ...] = self._asked("runs", tasks.run_many, runs, copied)
        self._told = reported[-1]
        return reported

    def _asked(self, what: str, task: Callable[..., Any], *args: Any) -> Any:
        binding, self._binding = self._binding, None
        if binding is None:
            return self._worker.call(what, task, self._number, *args)
        found = self._worker.call(what, tasks.bind_first, self._number, binding, task, args)
        self._process = self._worker.process
        return found

    @property
    def ran(self) -> str:
        """See Launch."""
        return self._told.ran

    @property
    def runs(self) -> int:
        """See Launch."""
        return self._told.runs

    @property
    def threads_used(self) -> int:
        """See Launch."""
        return self._told.threads_used

    @property
    def bad(self) -> int:
        """See Launch; for the last run."""
        return self._told.bad

    @property
    def proof(self) -> Proof | None:
        """The facts that the device's launcher in the worker collected; None if that process is gone."""
        if self._process is None or self._worker.process is not self._process or not self._worker.alive:
            return None
        found: Proof | None = self._worker.call("reporting the launches", tasks.proof, self._number)
        return found

    def __del__(self) -> None:
        self._worker.drop_launch(self._number)


def variant(real: Variant, worker: Caller) -> Variant:
    """The variant, bound and run in the worker."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        return RemoteLaunch(worker, inputs, outputs, axes, threads)

    return replace(real, bind=bind)


def device(real: Device, worker: Caller) -> Device:
    """The device, with the memory and proofs of the worker."""
    if real.memory is None:
        shared = SharedMemory(worker)
        return replace(real, memory=lambda: shared)
    memory = RemoteMemory(worker, traps=real.simulated())

    def proof(launch: Launch) -> Proof | None:
        return launch.proof if isinstance(launch, RemoteLaunch) else None

    return replace(real, memory=lambda: memory, proof=proof)
