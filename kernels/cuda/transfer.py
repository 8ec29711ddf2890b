"""Copies between host and device through pinned memory, in pieces: one is copied by the host while another is on its
way.

The device copies from and to pinned memory by itself, at the full rate of the bus; ordinary memory it reaches only
through the driver's own buffers, while the caller waits. Arrays of one chunk or less go that way, because there is
nothing to overlap. One thread of the host copies more slowly than the bus, so larger ones go over lanes: a thread, two
buffers and a stream each, of which each takes the next piece when it is done with one. Threads that share each piece
instead, which meet at its end, brought 17 GB/s up on an H100's host of 32 cores, where four threads copy 30 and the bus
takes 53 (measured outside of this project), and several GPUs hindered each other: suites/large/several_gpus.py.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache, partial
from threading import Lock
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.machine.cpu import affinity, usable_cores
from tritmark.harness.spec import Arrays, Axes, Launch, Op, Variant
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.backend import Backend, Event, Stream
from tritmark.kernels.cuda.blocks import ALIGNMENT
from tritmark.kernels.cuda.kernel import NONE_BAD
from tritmark.kernels.cuda.memory import MemoryPool
from tritmark.kernels.cuda.stats import CountedCopies, PerformanceStats

CHUNK = 16 << 20
"""Bytes of a staging buffer. Of 2 to 64 MiB this one served `through` best on the 16-core host of an H200."""
PIECES = 2
"""Into which a chunk is cut for lanes, each as large as one of their buffers. Smaller ones mean more calls of the
driver, of which Python's threads make one at a time."""
COPIERS = 4
"""Threads that copy between ordinary and pinned memory, at most, for each GPU: one alone is slower than the bus."""
WORTH_SPLITTING = 1 << 20
"""Bytes from which a host copy is shared among them."""
PIPELINED = 64 << 20
"""Bytes of input from which copying there, computing and copying back overlap, chunk by chunk."""
SLOTS = 3
"""Chunks that `through` has under way: one uploads, one is computed, one downloads."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Split:
    """How an array follows the axis that is split: each `units` of it stand for `entries` along the array's first
    axis, and what remains at the end for as many as a whole one (the groups of a packed format, the scale of a short
    block)."""

    units: int = 1
    entries: int = 1

    def length(self, units: int) -> int:
        """Entries for so many units of the axis."""
        return -(-units // self.units) * self.entries


class Enqueued(Launch, Protocol):
    """What `through` needs of the launches that a variant binds: CudaLaunch has it."""

    @property
    def bad_at(self) -> DeviceArray:
        """Where its kernels leave what Launch.bad tells."""

    def enqueue(self, stream: Stream) -> None:
        """Put all of it into a stream without waiting."""

    def timed(self, runs: int, device_ns: float) -> None:
        """The device measured so many runs."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """What `through` did."""

    launches: tuple[Enqueued, ...]
    """Those that ran, each perhaps for many chunks; their proofs tell how often."""
    chunks: int
    bad: int
    """As Launch.bad, over all chunks: index in the first input that was split. Outputs end before the chunk that it
    is in."""


@dataclass(frozen=True, slots=True)
class _Lane:
    """Of one thread of the host: two pinned buffers, and the stream that copies from or to them."""

    stream: Stream
    buffers: tuple[Array, Array]
    done: tuple[Event, Event]


class _Parts:
    """An array's pieces with the bytes where they begin, for several threads: each takes the next one."""

    def __init__(self, parts: Iterator[tuple[int, Array]]) -> None:
        self._left = parts
        self._lock = Lock()

    def __iter__(self) -> _Parts:
        return self

    def __next__(self) -> tuple[int, Array]:
        with self._lock:
            return next(self._left)

    def stop(self) -> None:
        """Nobody takes one any more."""
        with self._lock:
            self._left = iter(())


class Transfers:
    """The copies of a context."""

    def __init__(self, backend: Backend, pool: MemoryPool, stats: PerformanceStats, chunk: int = CHUNK) -> None:
        self._backend = backend
        self._pool = pool
        self._copies = CountedCopies(backend, stats)
        self._chunk = chunk
        self._up: list[_Lane] = []
        self._down: list[_Lane] = []
        self._streams = cache(lambda: (backend.new_stream(), backend.new_stream(), backend.new_stream()))
        self._arena: Array = np.empty(0, np.uint8)
        self._lock = Lock()  # the buffers of `through` are shared
        self._up_lock, self._down_lock = Lock(), Lock()  # and those of each direction, which do not wait for each other

    def ensure(self, what: str, sizes: Sequence[int]) -> None:
        """Raise InsufficientMemoryError where arrays of so many bytes each do not all fit; allocates nothing."""
        self._pool.ensure_ready(what, self._pool.required_bytes(sizes))

    def upload(self, values: Array, label: str = "") -> DeviceArray:
        """A C-contiguous copy of a NumPy array, of any strides, on the device; complete on return. Raises
        InsufficientMemoryError."""
        made = self._pool.array(values.shape, values.dtype, label)
        self.write(made, values)
        return made

    def write(self, array: DeviceArray, values: Array) -> None:
        """Copy a NumPy array of any strides into a C-contiguous one of its shape and dtype on the device; complete on
        return."""
        if not values.size:
            return
        if values.nbytes <= self._chunk:
            array.write(np.ascontiguousarray(values))
            return
        with self._up_lock:
            self._over_lanes(self._up, values, partial(self._send, array.pointer))
        array.mark_filled()

    def _send(self, pointer: int, lane: _Lane, parts: _Parts) -> None:
        for number, (offset, piece) in enumerate(parts):
            slot = number % 2
            if number >= 2:
                lane.done[slot].synchronize()
            np.copyto(_like(lane.buffers[slot], piece), piece)
            self._copies.write(pointer + offset, lane.buffers[slot][: piece.nbytes], lane.stream)
            lane.done[slot].record(lane.stream)

    def download(self, array: DeviceArray, into: Array | None = None) -> Array:
        """A copy on the host; complete on return. `into` has the array's shape and dtype, and any strides.

        Raises InvalidArgumentError where it has not.
        """
        if into is None:
            into = np.empty(array.shape, array.dtype)
        elif into.shape != array.shape or into.dtype != array.dtype:
            raise InvalidArgumentError(
                op="download",
                argument="into",
                found=f"{into.dtype} {into.shape}",
                legal=f"{array.dtype} {array.shape}, as on the device",
            )
        if not array.size:
            return into
        if array.nbytes <= self._chunk or not array.contiguous:
            if into.flags.c_contiguous and array.contiguous:
                array.read(into)
            else:
                into[...] = array.numpy()
            return into
        with self._down_lock:
            self._over_lanes(self._down, into, partial(self._fetch, array.pointer))
        return into

    def _fetch(self, pointer: int, lane: _Lane, parts: _Parts) -> None:
        earlier: tuple[int, Array] | None = None
        for number, (offset, piece) in enumerate(parts):
            slot = number % 2
            self._copies.read(pointer + offset, lane.buffers[slot][: piece.nbytes], lane.stream)
            lane.done[slot].record(lane.stream)
            if earlier:
                _take(lane, *earlier)
            earlier = slot, piece
        if earlier:
            _take(lane, *earlier)

    def _over_lanes(self, lanes: list[_Lane], values: Array, work: Callable[[_Lane, _Parts], None]) -> None:
        """`work` for every lane that has something to do, each in a thread of its own; complete on return."""
        copiers, nbytes = _copiers(self._backend.info.index), max(1, self._chunk // PIECES)
        count = min(COPIERS, usable_cores(), -(-values.nbytes // nbytes))
        while len(lanes) < count:
            lanes.append(self._lane(nbytes))
        parts = _Parts(pieces(values, nbytes))

        def one(lane: _Lane) -> None:
            try:
                work(lane, parts)
            except BaseException:
                parts.stop()
                raise
            finally:
                lane.stream.synchronize()

        others = [copiers.submit(one, lane) for lane in lanes[1:count]] if copiers is not None else []
        try:
            one(lanes[0])
        finally:
            wait(others)
        for each in others:
            each.result()

    def through(
        self,
        variant: Variant,
        inputs: Arrays,
        outputs: Arrays,
        axes: Axes,
        axis: str,
        split: Mapping[str, Split],
        multiple: int = 1,
    ) -> Streamed:
        """Run an elementwise or blockwise variant over host arrays of any size, with memory for a few chunks on the
        device.

        While one chunk is computed, the next uploads and the one before downloads. `split` names the arrays, inputs and
        outputs, that follow `axes[axis]`; chunks begin at multiples of `multiple`, which no block may straddle. The
        other inputs are whole for every chunk. Arrays may have any strides; outputs are written as chunks complete.

        Raises InvalidArgumentError where lengths do not agree, InsufficientMemoryError before anything runs,
        LaunchError, DeviceFaultError.
        """
        arrays = {name: array for name, array in (*inputs.items(), *outputs.items()) if name in split}
        _check(variant.key.op, arrays, split, axes[axis], multiple)
        units = _units(arrays, split, axes[axis], multiple, self._chunk)
        plan = _Plan(variant, inputs, outputs, axes, axis, split, units)
        with self._lock:
            return _Through(self._backend, self._pool, self._copies, plan, self._streams()).run(self._pinned)

    def pipelined(self, op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes) -> Streamed | None:
        """`through`, where each array has an element for each of the op's one axis and the inputs are PIPELINED
        bytes at least; or None."""
        (axis, *more) = op.axes
        split = {tensor.name: Split() for tensor in (*op.inputs, *op.outputs) if tensor.axes}
        if more or any(
            tensor.axes != (axis,) for tensor in (*op.inputs, *op.outputs) if tensor.axes or tensor in op.outputs
        ):
            return None
        if sum(value.nbytes for value in inputs.values() if isinstance(value, np.ndarray)) < PIPELINED:
            return None
        return self.through(variant, inputs, outputs, axes, axis, split)

    def _pinned(self, nbytes: int) -> Array:
        """Pinned memory, kept from call to call: to pin it takes longer than to copy it."""
        if self._arena.nbytes < nbytes:
            self._arena = self._backend.pinned(nbytes)
        return self._arena

    def _lane(self, nbytes: int) -> _Lane:
        backend = self._backend
        return _Lane(
            backend.new_stream(),
            (backend.pinned(nbytes), backend.pinned(nbytes)),
            (backend.new_event(), backend.new_event()),
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What `through` was asked for."""

    variant: Variant
    inputs: Arrays
    outputs: Arrays
    axes: Axes
    axis: str
    split: Mapping[str, Split]
    units: int
    """Units of the axis in a chunk."""

    def part(self, name: str, array: Array, begin: int, end: int) -> Array:
        """What an array has for some units of the axis."""
        split = self.split[name]
        part: Array = array[split.length(begin) : split.length(end)]
        return part


@dataclass(slots=True)
class _Slot:
    """Buffers of a chunk under way, on both sides."""

    device: dict[str, DeviceArray]
    pinned: dict[str, Array]
    bad: Array
    """uint64 (1,), pinned."""
    uploaded: Event
    begun: Event
    computed: Event
    downloaded: Event
    launches: dict[int, Enqueued]
    """By units of the axis: for whole chunks and for the last."""
    chunk: tuple[int, int] | None = None
    """Where along the axis it is."""


class _Through:
    """One call of Transfers.through."""

    def __init__(
        self,
        backend: Backend,
        pool: MemoryPool,
        copies: CountedCopies,
        plan: _Plan,
        streams: tuple[Stream, Stream, Stream],
    ) -> None:
        self._backend = backend
        self._pool = pool
        self._copies = copies
        self._plan = plan
        self._up, self._compute, self._down = streams
        self._inputs = {name: array for name, array in plan.inputs.items() if name in plan.split}
        self._outputs = {name: array for name, array in plan.outputs.items() if name in plan.split}
        self._whole: dict[str, Any] = {name: value for name, value in plan.inputs.items() if name not in plan.split}

    def run(self, pinned: Callable[[int], Array]) -> Streamed:
        """Do it; `pinned` gives pinned memory."""
        plan, total = self._plan, self._plan.axes[self._plan.axis]
        count = -(-total // plan.units)
        slots = self._slots(min(SLOTS, count), pinned)
        started, bad = 0, -1
        try:
            for number in range(count + len(slots)):
                slot = slots[number % len(slots)]
                bad = self._finish(slot)
                if bad >= 0:
                    break
                if number < count:
                    self._start(slot, number * plan.units, min(total, (number + 1) * plan.units))
                    started += 1
        finally:
            # Nothing may go back to the pool while a stream still uses it.
            for stream in (self._up, self._compute, self._down):
                stream.synchronize()
        return Streamed(tuple(launch for slot in slots for launch in slot.launches.values()), started, bad)

    def _slots(self, count: int, pinned: Callable[[int], Array]) -> list[_Slot]:
        plan, backend = self._plan, self._backend
        arrays = {**self._inputs, **self._outputs}
        shapes = {name: (plan.split[name].length(plan.units), *array.shape[1:]) for name, array in arrays.items()}
        sizes = {name: math.prod(shape) * arrays[name].itemsize for name, shape in shapes.items()}
        # the last chunk may have one of its own
        scratch = [plan.variant.workspace({**plan.axes, plan.axis: plan.units})] * 2
        there = [name for name, value in self._whole.items() if isinstance(value, np.ndarray) and value.ndim]
        required = [*[*sizes.values(), *scratch] * count, *[self._whole[name].nbytes for name in there]]
        self._pool.ensure_ready(plan.variant.id, self._pool.required_bytes(required))
        for name in there:
            values = self._whole[name]
            self._whole[name] = self._pool.array(values.shape, values.dtype, name)
            self._whole[name].write(np.ascontiguousarray(values))
        steps = {name: -(-nbytes // ALIGNMENT) * ALIGNMENT for name, nbytes in sizes.items()}
        arena = pinned(count * (sum(steps.values()) + ALIGNMENT))
        slots, at = [], 0
        for _ in range(count):
            host = {}
            for name, nbytes in sizes.items():
                host[name] = arena[at : at + nbytes]
                at += steps[name]
            bad = arena[at : at + 8].view(np.uint64)
            at += ALIGNMENT
            device = {name: self._pool.array(shape, arrays[name].dtype, name) for name, shape in shapes.items()}
            events = (backend.new_event(), backend.new_event(), backend.new_event(), backend.new_event())
            slots.append(_Slot(device, host, bad, *events, launches={}))
        return slots

    def _start(self, slot: _Slot, begin: int, end: int) -> None:
        slot.chunk = begin, end
        launch = slot.launches.get(end - begin)
        if launch is None:
            launch = slot.launches[end - begin] = self._bind(slot, end - begin)
        for name, array in self._inputs.items():
            part = self._plan.part(name, array, begin, end)
            copy(_like(slot.pinned[name], part), part, self._backend.info.index)
            self._copies.write(slot.device[name].pointer, slot.pinned[name][: part.nbytes], self._up)
        slot.uploaded.record(self._up)
        self._compute.wait(slot.uploaded)
        slot.begun.record(self._compute)
        launch.enqueue(self._compute)
        slot.computed.record(self._compute)
        self._down.wait(slot.computed)
        for name, array in self._outputs.items():
            nbytes = self._plan.part(name, array, begin, end).nbytes
            self._copies.read(slot.device[name].pointer, slot.pinned[name][:nbytes], self._down)
        # The kernels only ever lower it, so the first chunk that shows one shows its own.
        self._copies.read(launch.bad_at.pointer, slot.bad, self._down)
        slot.downloaded.record(self._down)

    def _bind(self, slot: _Slot, units: int) -> Enqueued:
        plan = self._plan
        device = {
            name: array.view((plan.split[name].length(units), *array.shape[1:])) for name, array in slot.device.items()
        }
        inputs = {name: device[name] if name in device else self._whole[name] for name in plan.inputs}
        outputs = {name: device[name] for name in plan.outputs}
        return cast(Enqueued, plan.variant.bind(inputs, outputs, {**plan.axes, plan.axis: units}, 1))

    def _finish(self, slot: _Slot) -> int:
        """Wait for the chunk in a slot and take what it gave; the index of an element that the contract forbids, or
        -1."""
        if slot.chunk is None:
            return -1
        (begin, end), slot.chunk = slot.chunk, None
        slot.downloaded.synchronize()
        slot.launches[end - begin].timed(1, slot.computed.since(slot.begun))
        if slot.bad[0] != NONE_BAD:
            name, array = next(iter(self._inputs.items()))
            before: int = self._plan.split[name].length(begin) * math.prod(array.shape[1:])
            return before + int(slot.bad[0])
        for name, array in self._outputs.items():
            part = self._plan.part(name, array, begin, end)
            copy(part, _like(slot.pinned[name], part), self._backend.info.index)
        return -1


def _check(op: str, arrays: Arrays, split: Mapping[str, Split], total: int, multiple: int) -> None:
    if total < 1:
        raise InvalidArgumentError(op=op, argument="the axis to split", found=f"of size {total}", legal="at least 1")
    for name, how in split.items():
        if name not in arrays:
            raise InvalidArgumentError(op=op, argument="split", found=f"{name!r}", legal="names of inputs and outputs")
        if multiple % how.units:
            found = f"{multiple}, with {name} in steps of {how.units}"
            raise InvalidArgumentError(
                op=op, argument="multiple", found=found, legal="a multiple of every array's units"
            )
        if arrays[name].shape[0] != how.length(total):
            found = f"{arrays[name].shape[0]} entries long"
            raise InvalidArgumentError(
                op=op, argument=name, found=found, legal=f"{how.length(total)} for {total} units of the axis"
            )


def _units(arrays: Arrays, split: Mapping[str, Split], total: int, multiple: int, nbytes: int) -> int:
    """Units of the axis in a chunk: a multiple of `multiple`, as many as keep the largest array within a buffer, but
    at least one."""
    each: int = max(array[: split[name].length(multiple)].nbytes for name, array in arrays.items())
    return min(max(1, nbytes // max(1, each)) * multiple, -(-total // multiple) * multiple)


def pieces(values: Array, nbytes: int) -> Iterator[tuple[int, Array]]:
    """Parts of an array that follow each other in C order, each of at most so many bytes, with the byte where it
    begins."""
    if values.nbytes <= nbytes:
        yield 0, values
        return
    if values.flags.c_contiguous:
        values = values.reshape(-1)
    row = values[0].nbytes
    if row > nbytes:
        for index in range(len(values)):
            for offset, piece in pieces(values[index], nbytes):
                yield index * row + offset, piece
        return
    step = nbytes // row
    for index in range(0, len(values), step):
        yield index * row, values[index : index + step]


def copy(into: Array, values: Array, gpu: int) -> None:
    """Copy on the host, by several threads where that is worth it, which are those of the GPU of that number."""
    copiers = _copiers(gpu) if values.nbytes >= WORTH_SPLITTING and len(values) > 1 else None
    if copiers is None:
        np.copyto(into, values)
        return
    share = -(-len(values) // COPIERS)
    parts = [slice(begin, begin + share) for begin in range(0, len(values), share)]
    for _ in copiers.map(np.copyto, [into[part] for part in parts], [values[part] for part in parts]):
        pass


def _take(lane: _Lane, slot: int, piece: Array) -> None:
    lane.done[slot].synchronize()
    np.copyto(piece, _like(lane.buffers[slot], piece))


def _like(buffer: Array, values: Array) -> Array:
    """The first bytes of a buffer as an array of the same shape and dtype."""
    return buffer[: values.nbytes].view(values.dtype).reshape(values.shape)


@cache
def _copiers(gpu: int) -> ThreadPoolExecutor | None:
    cores = usable_cores()
    if cores < 2:
        return None
    return ThreadPoolExecutor(min(COPIERS, cores), "tritmark-copy", initializer=_unbind)


def _unbind() -> None:
    """OpenMP may have bound the thread that made this one to a core, and this one with it."""
    os.sched_setaffinity(0, affinity())
