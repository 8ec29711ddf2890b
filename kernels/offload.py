"""From NumPy arrays to a device with a memory of its own and back: how the public functions run there, whichever
device it is."""

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
"""Times the memory of the largest: what `kept` may keep in all, so that of a model's weights, whose sizes are few and
far from each other, each size is bound once. See
docs/kernels/cuda_copies.md."""


@dataclass(frozen=True, slots=True)
class RanOnce:
    """What was run in one go: see Pipelined."""

    launches: tuple[Launch, ...]
    bad: int


class MemoryTransfers:
    """DeviceTransfers of a device that brings none of its own: one copy an array, through its Memory."""

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
        """See DeviceTransfers: nothing overlaps here."""
        return None


def in_turn(
    write: Callable[[Any, npt.NDArray[Any]], object],
    launch: Launch,
    download: Callable[[Any, npt.NDArray[Any]], object],
    inputs: Sequence[tuple[Any, npt.NDArray[Any]]],
    outputs: Sequence[tuple[Any, npt.NDArray[Any]]],
) -> RanOnce:
    """DeviceTransfers.run, one after the other."""
    for array, values in inputs:
        write(array, values)
    launch.run()
    done = RanOnce((launch,), launch.bad)
    for array, into in outputs if done.bad < 0 else ():
        download(array, into)
    return done


def transfers(device: Device) -> DeviceTransfers:
    """How arrays get to a device with a memory of its own: as it says itself, or through its Memory. Raises
    DeviceError for another."""
    if device.transfers is not None:
        return device.transfers()
    return MemoryTransfers(_memory(device))


def new(memory: Memory, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
    """An array of undefined content in a device's memory."""
    kind = dtype_of(dtype)
    return memory.view(memory.allocate(max(1, math.prod(shape) * kind.itemsize)), 0, shape, kind)


@dataclass(frozen=True, slots=True)
class KeptLaunch:
    """A variant that is bound to arrays on the device, for another call of the thread."""

    launch: Launch
    inputs: Arrays
    outputs: dict[str, Any]
    asked: tuple[Any, ...]
    """What else it would do for, see _asked."""
    nbytes: int
    """What it needs on the device."""


class ChainedLaunch:
    """Launches of which each reads what the one before it made, run as one. `bad` is that of the first."""

    def __init__(self, *launches: Any) -> None:
        self.launches = launches

    @property
    def bad(self) -> int:
        """See Launch."""
        found: int = self.launches[0].bad
        return found

    @property
    def bad_pointer(self) -> int:
        """Where the first writes what `bad` reports, on a device with such an address."""
        found: int = self.launches[0].bad_pointer
        return found

    @property
    def raw_launches(self) -> tuple[Any, ...] | None:
        """All of them for a round trip without Python in between, where the device's launches are of that kind."""
        each = [getattr(one, "raw_launches", None) for one in self.launches]
        return None if None in each else tuple(raw for some in each if some is not None for raw in some)

    def run(self) -> None:
        """Run each once, and wait."""
        for each in self.launches:
            each.run()

    def count(self, runs: int) -> None:
        """So many runs were given to the device."""
        for each in self.launches:
            each.count(runs)


class KeptLaunches:
    """Launches that were bound, the latest used last."""

    def __init__(self) -> None:
        self.launches: list[KeptLaunch] = []

    def find(self, asked: tuple[Any, ...]) -> KeptLaunch | None:
        """The launch that was bound for that."""
        return next((each for each in self.launches if each.asked == asked), None)

    def use(self, one: KeptLaunch) -> None:
        """Keep it, and of the others those latest used that fit into KEPT_BYTES."""
        self.launches = [each for each in self.launches if each is not one] + [one]
        most = KEPT_BYTES * max(each.nbytes for each in self.launches)
        while sum(each.nbytes for each in self.launches) > most:
            del self.launches[0]


_KEPT: ContextVar[KeptLaunches | None] = ContextVar("tritmark_kept", default=None)


@contextmanager
def kept() -> Iterator[None]:
    """Within it, a call of this thread that differs from one before in its arrays' contents alone takes over that
    one's memory on the device, and its launch. They are given back at the end, or when the latest need more than
    KEPT_BYTES, or when another call has too little without. Receipts count all calls of a launch."""
    before = _KEPT.set(KeptLaunches())
    try:
        yield
    finally:
        _KEPT.reset(before)


def keeps() -> bool:
    """Whether this thread is within `kept`."""
    return _KEPT.get() is not None


def again(
    device: Device, variant: Variant, inputs: Arrays, outputs: Mapping[str, npt.NDArray[Any]], axes: Axes
) -> Pipelined | None:
    """Run what an earlier call bound, where it did and that will do; None, and nothing was done, where not."""
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
    """Within `kept`, bind for this call and later ones, and run; None, and nothing was done, elsewhere.

    Copies there belong to the run, not to the binding: while they are under way nobody holds Python's lock. Raises
    InsufficientMemoryError, before anything is allocated, where all of it does not fit.
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

    Raises InsufficientMemoryError, before anything is allocated, where all of it does not fit.
    """
    outputs, _ = _outputs_there(device, op, variant, inputs, axes)
    return variant.bind(_uploaded(transfers(device), inputs), outputs, axes, 1), outputs


def _outputs_there(
    device: Device, op: Op, variant: Variant, inputs: Arrays, axes: Axes
) -> tuple[dict[str, Any], list[int]]:
    """New outputs on the device, which has room for the inputs too, and the bytes of all that is to be there."""
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
    """Copy the inputs that are NumPy's to where it was bound, run it, and copy its outputs back."""
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
    """What a call ran. To tell of it took a third of a small call on the CPU, and most callers never ask."""

    device: Device
    variant: Variant
    launches: Sequence[Launch]
    note: str | None = None
    """What the receipt says in place of the launches' own note; None leaves that."""

    def receipt(self) -> Receipt:
        """Of all launches, as they are now: one that runs again counts those runs too."""
        found = joined([receipt(self.device, self.variant, each) for each in self.launches])
        return found if self.note is None else replace(found, note=self.note)


def receipt(device: Device, variant: Variant, done: Launch) -> Receipt:
    """What a launch says about itself, with what the device's launcher collected."""
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
    """The receipt of several calls that belong together: that of the last, with the launches and times of all."""
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
    """What a launch hangs on, but for what is copied to the device: the same for another call that may take it over."""
    return variant, dict(axes), {name: _kind(value) for name, value in inputs.items()}


def _kind(value: Any) -> Any:
    """Of what is copied, shape and dtype; what is on the device already is itself alone."""
    if isinstance(value, np.ndarray | np.generic):
        return (value.shape, value.dtype, None if _array(value) else value.tobytes())
    return value if isinstance(value, int | float) else id(value)


def _array(value: Any) -> bool:
    """Whether it is copied: scalars are passed as they are, and what is no NumPy array is on the device already."""
    return isinstance(value, np.ndarray) and value.ndim > 0


def _memory(device: Device) -> Memory:
    if device.memory is None:
        raise DeviceError(f"{device.type} has no memory of its own", next_step="pass its kernels NumPy arrays")
    return device.memory()
