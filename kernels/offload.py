"""From NumPy arrays to a device with a memory of its own and back: how the public functions run there, whichever
device it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
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
        self._memory.write(made, np.ascontiguousarray(values))
        return made

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


def transfers(device: Device) -> DeviceTransfers:
    """How arrays get to a device with a memory of its own: as it says itself, or through its Memory. Raises
    DeviceError for another."""
    if device.transfers is not None:
        return device.transfers()
    return MemoryTransfers(_memory(device))


def new(memory: Memory, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
    """An array of undefined content in a device's memory."""
    kind = np.dtype(dtype)
    return memory.view(memory.allocate(max(1, math.prod(shape) * kind.itemsize)), 0, shape, kind)


def launch(device: Device, op: Op, variant: Variant, inputs: Arrays, axes: Axes) -> tuple[Launch, dict[str, Any]]:
    """Bind a variant to inputs that are on the device or are copied there, and to new outputs there; nothing runs yet.

    Raises InsufficientMemoryError, before anything is allocated, where all of it does not fit.
    """
    there, memory = transfers(device), _memory(device)
    like = {name: (shape, named_dtype(dtype)) for name, (shape, dtype) in op.outputs_like(axes, variant.key).items()}
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in like.values()]
    sizes += [value.nbytes for value in inputs.values() if _array(value)]
    there.ensure(variant.id, [*sizes, variant.workspace(axes)])
    outputs = {name: new(memory, shape, dtype) for name, (shape, dtype) in like.items()}
    return bound(device, variant, inputs, outputs, axes), outputs


def bound(device: Device, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes) -> Launch:
    """Bind a variant to outputs on the device, and to inputs that are there or are copied there."""
    there = transfers(device)
    uploaded = {name: there.upload(value) if _array(value) else value for name, value in inputs.items()}
    return variant.bind(uploaded, outputs, axes, 1)


def fetch(device: Device, arrays: Arrays, outputs: Mapping[str, npt.NDArray[Any]]) -> None:
    """Copy results into the caller's arrays."""
    back = transfers(device)
    for name, array in arrays.items():
        back.download(array, outputs[name])


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
    functions = tuple(dict.fromkeys(name for each in receipts for name in each.functions))
    return replace(
        receipts[-1],
        functions=functions,
        launches=sum(each.launches for each in receipts),
        device_ns=sum(each.device_ns for each in receipts),
    )


def _array(value: Any) -> bool:
    """Whether it is copied: scalars are passed as they are, and what is no NumPy array is on the device already."""
    return isinstance(value, np.ndarray) and value.ndim > 0


def _memory(device: Device) -> Memory:
    if device.memory is None:
        raise DeviceError(f"{device.type} has no memory of its own", next_step="pass its kernels NumPy arrays")
    return device.memory()
