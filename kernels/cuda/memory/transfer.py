"""Copies between host and device, and computation on arrays of any size in chunks: while one chunk is computed, the
next is copied to the device and the previous one back.

The driver copies small arrays; larger ones use lanes (lanes.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Arrays, Axes, Launch, Op, Variant
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.backend import Backend, Event, RawLaunch, Stream
from tritmark.kernels.cuda.kernel import NONE_BAD
from tritmark.kernels.cuda.memory.lanes import Lanes
from tritmark.kernels.cuda.memory.memory import MemoryPool
from tritmark.kernels.dispatch.offload import RanOnce, in_turn

CHUNK = 64 << 20
"""Bytes of a chunk in the largest of its arrays."""
ALONE = 1 << 20
"""Arrays up to so many bytes are copied by the driver while the caller waits."""
PIPELINED = 128 << 20
"""For inputs of so many bytes or more, copies and computation overlap in chunks."""
SLOTS = 3
"""Chunks in progress in `through`: one uploads, one is computed, one downloads."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Split:
    """How an array follows the split axis: each `units` of the axis have `entries` along the array's first axis. A
    remainder at the end has as many entries as a whole unit (the groups of a packed format, the scale of a short
    block)."""

    units: int = 1
    entries: int = 1

    def length(self, units: int) -> int:
        """Entries for so many units of the axis."""
        return -(-units // self.units) * self.entries


class Enqueued(Launch, Protocol):
    """The methods that `through` needs of a variant's launches; CudaLaunch has them."""

    def enqueue(self, stream: Stream) -> None:
        """Put the whole launch into a stream without waiting."""

    def timed(self, runs: int, device_ns: float) -> None:
        """Record the device time of runs."""


class CudaLaunched(Protocol):
    """The methods that a round trip needs of a variant's launches; CudaLaunch has them."""

    @property
    def bad_pointer(self) -> int:
        """Address of `bad` on the device."""

    @property
    def bad(self) -> int:
        """See Launch."""

    def count(self, runs: int) -> None:
        """Count runs on the device."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """The result of `through`."""

    launches: tuple[Enqueued, ...]
    """The launches that ran, each for one or more chunks; their proofs have the counts."""
    chunks: int
    bad: int
    """Like Launch.bad over all chunks: an index in the first split input. Outputs end before the chunk that contains
    it."""


class Transfers:
    """The copies of a context."""

    def __init__(self, backend: Backend, pool: MemoryPool, chunk: int = CHUNK) -> None:
        self._backend = backend
        self._pool = pool
        self._chunk, self._alone = chunk, min(chunk, ALONE)
        piece = None if chunk == CHUNK else max(1, chunk // 2)
        self._up, self._down = (Lanes(backend, pool.copies, piece) for _ in range(2))
        self._stream = cache(backend.new_stream)

    def ensure(self, what: str, sizes: Sequence[int]) -> None:
        """Raise InsufficientMemoryError if arrays of these bytes do not all fit; allocates nothing."""
        self._pool.ensure_ready(what, self._pool.required_bytes(sizes))

    def upload(self, values: Array, label: str = "") -> DeviceArray:
        """A C-contiguous copy of a NumPy array of any strides on the device; complete on return. Raises
        InsufficientMemoryError."""
        made = self._pool.array(values.shape, values.dtype, label)
        self.write(made, values)
        return made

    def write(self, array: DeviceArray, values: Array) -> None:
        """Copy a NumPy array of any strides into a C-contiguous device array of the same shape and dtype; complete on
        return."""
        if not values.size:
            return
        if values.nbytes <= self._alone:
            array.write(np.ascontiguousarray(values))
            return
        self._up.send(array.pointer, values)
        array.mark_filled()

    def download(self, array: DeviceArray, into: Array | None = None) -> Array:
        """A copy on the host; complete on return. `into` must have the array's shape and dtype, with any strides.

        Raises InvalidArgumentError if it does not.
        """
        if into is None:
            into = np.empty(array.shape, array.dtype)
        elif into.shape != array.shape or into.dtype != array.dtype:
            raise InvalidArgumentError(
                op="download",
                argument="into",
                found=f"{into.dtype} {into.shape}",
                legal=f"{array.dtype} {array.shape}, like the array on the device",
            )
        if not array.size:
            return into
        if array.nbytes <= self._alone or not array.contiguous:
            if into.flags.c_contiguous and array.contiguous:
                array.read(into)
            else:
                into[...] = array.numpy()
            return into
        self._down.fetch(array.pointer, into)
        return into

    def stream(self) -> AbstractContextManager[Stream]:
        """See Lanes.stream."""
        return self._up.stream()

    def run(self, launch: Launch, inputs: Sequence[tuple[Any, Array]], outputs: Sequence[tuple[Any, Array]]) -> RanOnce:
        """See DeviceTransfers."""
        bad = self._round_trip(launch, inputs, outputs)
        if bad is None:
            return in_turn(self.write, launch, self.download, inputs, outputs)
        return RanOnce((launch,), bad)

    def _round_trip(
        self, launch: Launch, inputs: Sequence[tuple[Any, Array]], outputs: Sequence[tuple[Any, Array]]
    ) -> int | None:
        """Run without Python calls in between; None without any work if that is not possible."""
        raw: tuple[RawLaunch, ...] | None = getattr(launch, "raw_launches", None)
        if raw is None or not all(each.flags.c_contiguous for _, each in (*inputs, *outputs)):
            return None
        made = cast(CudaLaunched, launch)
        there, back = ([(each, array.pointer) for array, each in arrays] for arrays in (inputs, outputs))
        found = self._down.round_trip(there, raw, made.bad_pointer, back)
        if found is None:
            return None
        made.count(1)
        return -1 if found == NONE_BAD else made.bad  # reading resets it

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
        """Run an elementwise or blockwise variant over host arrays of any size, with device memory for a few chunks.

        While one chunk is computed, the next uploads and the previous one downloads. `split` names the inputs and
        outputs that follow `axes[axis]`. Chunks begin at multiples of `multiple`, and no block may cross such a
        boundary. Every chunk gets the other inputs in full. Arrays may have any strides; outputs are written as chunks
        complete.

        Raises InvalidArgumentError for inconsistent lengths, InsufficientMemoryError before anything runs, LaunchError,
        DeviceFaultError.
        """
        arrays = {name: array for name, array in (*inputs.items(), *outputs.items()) if name in split}
        _check(variant.key.op, arrays, split, axes[axis], multiple)
        units = _units(arrays, split, axes[axis], multiple, self._chunk)
        plan = _Plan(variant, inputs, outputs, axes, axis, split, units)
        return _Through(self._backend, self._pool, plan, self._stream(), (self._up, self._down)).run()

    def pipelined(self, op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes) -> Streamed | None:
        """Run `through` if every array has one element per element of the op's only axis and the inputs have PIPELINED
        bytes or more; otherwise return None."""
        (axis, *more) = op.axes
        split = {tensor.name: Split() for tensor in (*op.inputs, *op.outputs) if tensor.axes}
        if more or any(
            tensor.axes != (axis,) for tensor in (*op.inputs, *op.outputs) if tensor.axes or tensor in op.outputs
        ):
            return None
        if sum(value.nbytes for value in inputs.values() if isinstance(value, np.ndarray)) < PIPELINED:
            return None
        return self.through(variant, inputs, outputs, axes, axis, split)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The arguments of `through`."""

    variant: Variant
    inputs: Arrays
    outputs: Arrays
    axes: Axes
    axis: str
    split: Mapping[str, Split]
    units: int
    """Units of the axis per chunk."""

    def part(self, name: str, array: Array, begin: int, end: int) -> Array:
        """The part of an array for a range of units of the axis."""
        split = self.split[name]
        part: Array = array[split.length(begin) : split.length(end)]
        return part


@dataclass(slots=True)
class _Slot:
    """Device memory for a chunk in progress."""

    device: dict[str, DeviceArray]
    begun: Event
    computed: Event
    launches: dict[int, Enqueued]
    """By units of the axis: one for whole chunks, one for the last."""
    taken: Future[None] | None = None
    """Done when the host has the results of the chunk."""


class _Through:
    """One call of Transfers.through: this thread sends chunks and launches, another one fetches results."""

    def __init__(
        self, backend: Backend, pool: MemoryPool, plan: _Plan, stream: Stream, lanes: tuple[Lanes, Lanes]
    ) -> None:
        self._backend = backend
        self._pool = pool
        self._plan = plan
        self._stream = stream
        self._up, self._down = lanes
        self._inputs = {name: array for name, array in plan.inputs.items() if name in plan.split}
        self._outputs = {name: array for name, array in plan.outputs.items() if name in plan.split}
        self._whole: dict[str, Any] = {name: value for name, value in plan.inputs.items() if name not in plan.split}
        self._bad = -1

    def run(self) -> Streamed:
        """Run all chunks."""
        plan, total = self._plan, self._plan.axes[self._plan.axis]
        count = -(-total // plan.units)
        slots = self._slots(min(SLOTS, count))
        started = 0
        try:
            with ThreadPoolExecutor(1, "tritmark-fetch") as fetching:
                for number in range(count):
                    slot = slots[number % len(slots)]
                    if slot.taken is not None:
                        slot.taken.result()
                    if self._bad >= 0:
                        break
                    begin, end = number * plan.units, min(total, (number + 1) * plan.units)
                    launch = self._start(slot, begin, end)
                    slot.taken = fetching.submit(self._take, slot, launch, begin, end)
                    started += 1
            for slot in slots:
                if slot.taken is not None:
                    slot.taken.result()
        finally:
            self._stream.synchronize()  # a kernel may still use memory of the pool
        return Streamed(tuple(launch for slot in slots for launch in slot.launches.values()), started, self._bad)

    def _slots(self, count: int) -> list[_Slot]:
        plan, backend = self._plan, self._backend
        arrays = {**self._inputs, **self._outputs}
        shapes = {name: (plan.split[name].length(plan.units), *array.shape[1:]) for name, array in arrays.items()}
        sizes = [math.prod(shape) * arrays[name].itemsize for name, shape in shapes.items()]
        # The last chunk may need its own workspace.
        scratch = [plan.variant.workspace({**plan.axes, plan.axis: plan.units})] * 2
        there = [name for name, value in self._whole.items() if isinstance(value, np.ndarray) and value.ndim]
        required = [*[*sizes, *scratch] * count, *[self._whole[name].nbytes for name in there]]
        self._pool.ensure_ready(plan.variant.id, self._pool.required_bytes(required))
        for name in there:
            values = self._whole[name]
            self._whole[name] = self._pool.array(values.shape, values.dtype, name)
            self._whole[name].write(np.ascontiguousarray(values))
        return [
            _Slot(
                {name: self._pool.array(shape, arrays[name].dtype, name) for name, shape in shapes.items()},
                backend.new_event(),
                backend.new_event(),
                launches={},
            )
            for _ in range(count)
        ]

    def _start(self, slot: _Slot, begin: int, end: int) -> Enqueued:
        launch = slot.launches.get(end - begin)
        if launch is None:
            launch = slot.launches[end - begin] = self._bind(slot, end - begin)
        for name, array in self._inputs.items():
            self._up.send(slot.device[name].pointer, self._plan.part(name, array, begin, end))
        slot.begun.record(self._stream)
        launch.enqueue(self._stream)
        slot.computed.record(self._stream)
        return launch

    def _bind(self, slot: _Slot, units: int) -> Enqueued:
        plan = self._plan
        device = {
            name: array.view((plan.split[name].length(units), *array.shape[1:])) for name, array in slot.device.items()
        }
        inputs = {name: device[name] if name in device else self._whole[name] for name in plan.inputs}
        outputs = {name: device[name] for name in plan.outputs}
        return cast(Enqueued, plan.variant.bind(inputs, outputs, {**plan.axes, plan.axis: units}, 1))

    def _take(self, slot: _Slot, launch: Enqueued, begin: int, end: int) -> None:
        """Wait for a chunk and fetch its results, unless it or an earlier chunk has an element that the contract
        forbids."""
        slot.computed.synchronize()
        launch.timed(1, slot.computed.since(slot.begun))
        if self._bad >= 0:
            return
        bad = launch.bad
        if bad >= 0:
            name, array = next(iter(self._inputs.items()))
            self._bad = self._plan.split[name].length(begin) * math.prod(array.shape[1:]) + bad
            return
        for name, array in self._outputs.items():
            self._down.fetch(slot.device[name].pointer, self._plan.part(name, array, begin, end))


def _check(op: str, arrays: Arrays, split: Mapping[str, Split], total: int, multiple: int) -> None:
    if total < 1:
        raise InvalidArgumentError(op=op, argument="the axis to split", found=f"of size {total}", legal="at least 1")
    for name, how in split.items():
        if name not in arrays:
            raise InvalidArgumentError(
                op=op, argument="split", found=f"{name!r}", legal="the name of an input or output"
            )
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
    """Units of the axis per chunk: a multiple of `multiple`, as many as keep the largest array within a buffer, at
    least one multiple."""
    each: int = max(array[: split[name].length(multiple)].nbytes for name, array in arrays.items())
    return min(max(1, nbytes // max(1, each)) * multiple, -(-total // multiple) * multiple)
