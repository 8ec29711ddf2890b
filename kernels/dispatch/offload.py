"""Run public functions on any device with its own memory: copy NumPy arrays there, launch, and copy back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import dtype_of, named_dtype
from tritmark.harness.errors import DeviceError, InsufficientMemoryError
from tritmark.harness.spec import (
    Arrays,
    Axes,
    Device,
    DeviceTransfers,
    Launch,
    Memory,
    Op,
    Pipelined,
    Receipt,
    Variant,
)

KEPT_BYTES = 2
"""Limit of all that `kept` keeps, in multiples of the largest launch's memory. A model has few sizes of weights, far
apart from each other, so each size is bound once. See docs/kernels/cuda_copies.md."""


@dataclass(frozen=True, slots=True)
class RanOnce:
    """A call that ran in one piece: see Pipelined."""

    launches: tuple[Launch, ...]
    bad: int


class MemoryTransfers:
    """DeviceTransfers of a device without its own: one copy for each array, through its Memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def ensure(self, what: str, sizes: Sequence[int]) -> None:
        """See DeviceTransfers."""
        required, available = sum(sizes), self._memory.available()
        if required > available:
            step = "use smaller arrays, or the CPU"
            raise InsufficientMemoryError(what=what, required=required, available=available, next_step=step)

    def upload(self, values: npt.NDArray[Any]) -> Any:
        """See DeviceTransfers."""
        made = new(self._memory, values.shape, values.dtype)
        self._write(made, values)
        return made

    def run(
        self,
        launch: Launch,
        inputs: Sequence[tuple[Any, npt.NDArray[Any]]],
        outputs: Sequence[tuple[Any, npt.NDArray[Any]]],
    ) -> Pipelined:
        """See DeviceTransfers."""
        return in_turn(self._write, launch, self.download, inputs, outputs)

    def _write(self, array: Any, values: npt.NDArray[Any]) -> None:
        self._memory.write(array, np.ascontiguousarray(values))

    def download(self, array: Any, into: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """See DeviceTransfers."""
        found = into if into.flags.c_contiguous else np.empty(into.shape, into.dtype)
        self._memory.read(array, found)
        if found is not into:
            into[...] = found
        return into

    def pipelined(self, op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes) -> Pipelined | None:
        """None: copies and launches do not overlap. See DeviceTransfers."""
        return None


def in_turn(
    write: Callable[[Any, npt.NDArray[Any]], object],
    launch: Launch,
    download: Callable[[Any, npt.NDArray[Any]], object],
    inputs: Sequence[tuple[Any, npt.NDArray[Any]]],
    outputs: Sequence[tuple[Any, npt.NDArray[Any]]],
) -> RanOnce:
    """DeviceTransfers.run, in sequence."""
    for array, values in inputs:
        write(array, values)
    launch.run()
    done = RanOnce((launch,), launch.bad)
    for array, into in outputs if done.bad < 0 else ():
        download(array, into)
    return done


def transfers(device: Device) -> DeviceTransfers:
    """The transfers of a device with its own memory: those that it defines, or copies through its Memory. Raises
    DeviceError for a device without its own memory."""
    if device.transfers is not None:
        return device.transfers()
    return MemoryTransfers(_memory(device))


def new(memory: Memory, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
    """An array of undefined content in a device's memory."""
    kind = dtype_of(dtype)
    return memory.view(memory.allocate(max(1, math.prod(shape) * kind.itemsize)), 0, shape, kind)


@dataclass(frozen=True, slots=True)
class KeptLaunch:
    """A variant bound to arrays on the device, kept for a later call of the thread."""

    launch: Launch
    inputs: Arrays
    outputs: dict[str, Any]
    asked: tuple[Any, ...]
    """Calls with an equal key may reuse it, see _asked."""
    nbytes: int
    """Bytes that it needs on the device."""


class ChainedLaunch:
    """Launches that run as one; each reads the output of the one before it. `bad` is that of the first."""

    def __init__(self, *launches: Any) -> None:
        self.launches = launches

    @property
    def bad(self) -> int:
        """See Launch."""
        found: int = self.launches[0].bad
        return found

    @property
    def bad_pointer(self) -> int:
        """The address to which the first launch writes `bad`, on a device with such an address."""
        found: int = self.launches[0].bad_pointer
        return found

    @property
    def raw_launches(self) -> tuple[Any, ...] | None:
        """All launches, for a round trip without Python in between, if the device's launches support it."""
        each = [getattr(one, "raw_launches", None) for one in self.launches]
        return None if None in each else tuple(raw for some in each if some is not None for raw in some)

    def run(self) -> None:
        """Run each once, in order, and wait."""
        for each in self.launches:
            each.run()

    def count(self, runs: int) -> None:
        """Count `runs` that were submitted to the device."""
        for each in self.launches:
            each.count(runs)


class KeptLaunches:
    """Bound launches, the most recently used last."""

    def __init__(self) -> None:
        self.launches: list[KeptLaunch] = []

    def find(self, asked: tuple[Any, ...]) -> KeptLaunch | None:
        """The launch with this key, or None."""
        return next((each for each in self.launches if each.asked == asked), None)

    def use(self, one: KeptLaunch) -> None:
        """Keep it, and of the others the most recently used that fit into KEPT_BYTES."""
        self.launches = [each for each in self.launches if each is not one] + [one]
        most = KEPT_BYTES * max(each.nbytes for each in self.launches)
        while sum(each.nbytes for each in self.launches) > most:
            del self.launches[0]


_KEPT: ContextVar[KeptLaunches | None] = ContextVar("tritmark_kept", default=None)
_APART: ContextVar[bool] = ContextVar("tritmark_apart", default=False)


@contextmanager
def kept() -> Iterator[None]:
    """A context in which a call of this thread reuses the device memory and the launch of an earlier call, if the two
    differ only in the contents of arrays.

    Memory is released at the end, when the recent launches exceed KEPT_BYTES, or when another call needs it. Receipts
    count all calls of a launch."""
    before = _KEPT.set(KeptLaunches())
    try:
        yield
    finally:
        _KEPT.reset(before)


def keeps() -> bool:
    """Whether this thread is inside `kept`."""
    return _KEPT.get() is not None


@contextmanager
def apart() -> Iterator[None]:
    """A context in which a call runs beside those of other threads: it shares no launch with them, and on a device with
    streams it has one of its own."""
    kept_before, before = _KEPT.set(None), _APART.set(True)
    try:
        yield
    finally:
        _APART.reset(before)
        _KEPT.reset(kept_before)


def runs_apart() -> bool:
    """Whether this thread is inside `apart`."""
    return _APART.get()


def again(
    device: Device, variant: Variant, inputs: Arrays, outputs: Mapping[str, npt.NDArray[Any]], axes: Axes
) -> Pipelined | None:
    """Run the launch of an earlier call if it fits this one; otherwise do nothing and return None."""
    keeping = _KEPT.get()
    if keeping is None:
        return None
    asked = _asked(variant, inputs, axes)
    found = keeping.find(asked)
    if found is None:
        return None
    keeping.use(found)
    return run_kept(device, found, inputs, outputs)


def bind_and_run(
    device: Device, op: Op, variant: Variant, inputs: Arrays, outputs: Mapping[str, npt.NDArray[Any]], axes: Axes
) -> Pipelined | None:
    """Inside `kept`, bind for this call and later ones, and run; elsewhere, do nothing and return None.

    Copies to the device are part of the run, not of the binding, so they do not hold Python's lock. Raises
    InsufficientMemoryError, before any allocation, if the total does not fit.
    """
    keeping = _KEPT.get()
    if keeping is None:
        return None
    there, sizes = _outputs_there(device, op, variant, inputs, axes)
    memory = _memory(device)
    taken = {name: new(memory, each.shape, each.dtype) if _array(each) else each for name, each in inputs.items()}
    made = KeptLaunch(variant.bind(taken, there, axes, 1), taken, there, _asked(variant, inputs, axes), sum(sizes))
    keeping.use(made)
    return run_kept(device, made, inputs, outputs)


def launch(device: Device, op: Op, variant: Variant, inputs: Arrays, axes: Axes) -> tuple[Launch, dict[str, Any]]:
    """Bind a variant to inputs that are on the device or are copied there, and to new outputs there; nothing runs yet.

    Raises InsufficientMemoryError, before any allocation, if the total does not fit.
    """
    outputs, _ = _outputs_there(device, op, variant, inputs, axes)
    return variant.bind(_uploaded(transfers(device), inputs), outputs, axes, 1), outputs


def _outputs_there(
    device: Device, op: Op, variant: Variant, inputs: Arrays, axes: Axes
) -> tuple[dict[str, Any], list[int]]:
    """New outputs on the device, and the total bytes of inputs and outputs there; checks that all of them fit."""
    there, memory = transfers(device), _memory(device)
    like = {name: (shape, named_dtype(dtype)) for name, (shape, dtype) in op.outputs_like(axes, variant.key).items()}
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in like.values()]
    sizes += [value.nbytes for value in inputs.values() if _array(value)]
    sizes.append(variant.workspace(axes))
    try:
        there.ensure(variant.id, sizes)
    except InsufficientMemoryError:
        keeping = _KEPT.get()
        if keeping is None or not keeping.launches:
            raise
        keeping.launches.clear()
        there.ensure(variant.id, sizes)
    return {name: new(memory, shape, dtype) for name, (shape, dtype) in like.items()}, sizes


def run_kept(device: Device, made: KeptLaunch, inputs: Arrays, outputs: Mapping[str, npt.NDArray[Any]]) -> Pipelined:
    """Copy the NumPy inputs to the bound arrays, run the launch, and copy its outputs back."""
    up = [(made.inputs[name], value) for name, value in inputs.items() if _array(value)]
    return transfers(device).run(made.launch, up, [(made.outputs[name], into) for name, into in outputs.items()])


def bound(device: Device, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes) -> Launch:
    """Bind a variant to outputs on the device, and to inputs that are there or are copied there."""
    return variant.bind(_uploaded(transfers(device), inputs), outputs, axes, 1)


def fetch(device: Device, arrays: Arrays, outputs: Mapping[str, npt.NDArray[Any]]) -> None:
    """Copy results into the caller's arrays."""
    back = transfers(device)
    for name, array in arrays.items():
        back.download(array, outputs[name])


@dataclass(slots=True)
class FinishedCall:
    """The launches of a call. The receipt is made on request, since it took a third of a small call on the CPU."""

    device: Device
    variant: Variant
    launches: Sequence[Launch]
    note: str | None = None
    """Replaces the launches' own note in the receipt; None keeps it."""

    def receipt(self) -> Receipt:
        """The receipt of all launches in their current state: later runs of a launch count too."""
        found = joined([receipt(self.device, self.variant, each) for each in self.launches])
        return found if self.note is None else replace(found, note=self.note)


def receipt(device: Device, variant: Variant, done: Launch) -> Receipt:
    """The receipt of a launch, with the facts that the device's launcher collected."""
    proof = device.proof(done)
    if proof is None:
        return Receipt(kernel=variant.id, ran=done.ran, runs=done.runs, threads=done.threads_used, tuned=variant.tuned)
    return Receipt(
        kernel=variant.id,
        ran=done.ran,
        runs=done.runs,
        threads=done.threads_used,
        note="the simulator ran it, on the CPU" if proof.simulated else "",
        **{each.name: getattr(proof, each.name) for each in fields(proof)}
        | {"tuned": "; ".join(filter(None, (variant.tuned, proof.tuned)))},
    )


def joined(receipts: Sequence[Receipt]) -> Receipt:
    """The receipt of several calls that belong together: the last one, with the launches and times of all."""
    if len(receipts) == 1:
        return receipts[0]
    functions = tuple(dict.fromkeys(name for each in receipts for name in each.functions))
    return replace(
        receipts[-1],
        functions=functions,
        launches=sum(each.launches for each in receipts),
        device_ns=sum(each.device_ns for each in receipts),
    )


def _uploaded(there: DeviceTransfers, inputs: Arrays) -> Arrays:
    return {name: there.upload(value) if _array(value) else value for name, value in inputs.items()}


def _asked(variant: Variant, inputs: Arrays, axes: Axes) -> tuple[Any, ...]:
    """The key of a launch: everything that it depends on, except copied contents. Calls with equal keys may share
    it."""
    return variant, dict(axes), {name: _kind(value) for name, value in inputs.items()}


def _kind(value: Any) -> Any:
    """Shape and dtype of an array that is copied; an array on the device is its own key."""
    if isinstance(value, np.ndarray | np.generic):
        return (value.shape, value.dtype, None if _array(value) else value.tobytes())
    return value if isinstance(value, int | float) else id(value)


def _array(value: Any) -> bool:
    """Whether `value` is copied: scalars are passed by value, and other arrays are on the device already."""
    return isinstance(value, np.ndarray) and value.ndim > 0


def _memory(device: Device) -> Memory:
    if device.memory is None:
        raise DeviceError(f"{device.type} has no memory of its own", next_step="pass NumPy arrays to its kernels")
    return device.memory()
