"""Copies between host and device, and computing on arrays of any size chunk by chunk: while one chunk is computed, the
next goes there and the one before comes back.

Small arrays are copied by the driver alone, larger ones over lanes (lanes.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
from tritmark.kernels.cuda.lanes import Lanes
from tritmark.kernels.cuda.memory import MemoryPool
from tritmark.kernels.offload import RanOnce, in_turn

CHUNK = 64 << 20
"""Bytes of a chunk, of the largest of its arrays."""
ALONE = 1 << 20
"""Bytes up to which the driver copies an array, while the caller waits."""
PIPELINED = 128 << 20
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

    def enqueue(self, stream: Stream) -> None:
        """Put all of it into a stream without waiting."""

    def timed(self, runs: int, device_ns: float) -> None:
        """The device measured so many runs."""


class CudaLaunched(Protocol):
    """What a round trip needs of the launches that a variant binds: CudaLaunch has it."""

    @property
    def bad_pointer(self) -> int:
        """Where the kernels write what `bad` tells."""

    @property
    def bad(self) -> int:
        """See Launch."""

    def count(self, runs: int) -> None:
        """So many runs were given to the device."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """What `through` did."""

    launches: tuple[Enqueued, ...]
    """Those that ran, each perhaps for many chunks; their proofs tell how often."""
    chunks: int
    bad: int
    """As Launch.bad, over all chunks: index in the first input that was split. Outputs end before the chunk that it
    is in."""


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
        if values.nbytes <= self._alone:
            array.write(np.ascontiguousarray(values))
            return
        self._up.send(array.pointer, values)
        array.mark_filled()

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
        if array.nbytes <= self._alone or not array.contiguous:
            if into.flags.c_contiguous and array.contiguous:
                array.read(into)
            else:
                into[...] = array.numpy()
            return into
        self._down.fetch(array.pointer, into)
        return into

    def run(self, launch: Launch, inputs: Sequence[tuple[Any, Array]], outputs: Sequence[tuple[Any, Array]]) -> RanOnce:
        """See DeviceTransfers."""
        bad = self._round_trip(launch, inputs, outputs)
        if bad is None:
            return in_turn(self.write, launch, self.download, inputs, outputs)
        return RanOnce((launch,), bad)

    def _round_trip(
        self, launch: Launch, inputs: Sequence[tuple[Any, Array]], outputs: Sequence[tuple[Any, Array]]
    ) -> int | None:
        """The same without Python in between; None, and nothing was done, where that cannot be."""
        raw: tuple[RawLaunch, ...] | None = getattr(launch, "raw_launches", None)
        if raw is None or not all(each.flags.c_contiguous for _, each in (*inputs, *outputs)):
            return None
        made = cast(CudaLaunched, launch)
        there, back = ([(each, array.pointer) for array, each in arrays] for arrays in (inputs, outputs))
        found = self._down.round_trip(there, raw, made.bad_pointer, back)
        if found is None:
            return None
        made.count(1)
        return -1 if found == NONE_BAD else made.bad  # which forgets it

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
        return _Through(self._backend, self._pool, plan, self._stream(), (self._up, self._down)).run()

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
    """Memory of the device for a chunk under way."""

    device: dict[str, DeviceArray]
    begun: Event
    computed: Event
    launches: dict[int, Enqueued]
    """By units of the axis: for whole chunks and for the last."""
    taken: Future[None] | None = None
    """Done when the host has what the chunk gave."""


class _Through:
    """One call of Transfers.through: this thread sends chunks and launches, another one fetches what they gave."""

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
        """Do it."""
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
            self._stream.synchronize()  # nothing may go back to the pool while a kernel still uses it
        return Streamed(tuple(launch for slot in slots for launch in slot.launches.values()), started, self._bad)

    def _slots(self, count: int) -> list[_Slot]:
        plan, backend = self._plan, self._backend
        arrays = {**self._inputs, **self._outputs}
        shapes = {name: (plan.split[name].length(plan.units), *array.shape[1:]) for name, array in arrays.items()}
        sizes = [math.prod(shape) * arrays[name].itemsize for name, shape in shapes.items()]
        # the last chunk may have one of its own
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
        """Wait for a chunk and fetch what it gave, unless there is an element in it, or was one before, that the
        contract forbids."""
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
