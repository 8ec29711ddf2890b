"""From NumPy arrays to the device and back: how the public functions run there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Arrays, Axes, Launch, Op, Receipt, Variant
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.launch import CudaLaunch
from tritmark.kernels.cuda.memory import ensure_ready, required_bytes
from tritmark.kernels.cuda.room import room
from tritmark.kernels.cuda.transfer import Split, Streamed, download, upload

PIPELINED = 64 << 20
"""Bytes of input from which copying there, computing and copying back overlap, chunk by chunk."""


def chunked(op: Op, inputs: Arrays) -> str | None:
    """The axis along which a call is worth running in chunks: each of its arrays has an element for each of that one axis."""
    arrays = [tensor for tensor in (*op.inputs, *op.outputs) if tensor.axes or tensor in op.outputs]
    (axis, *more) = op.axes
    if more or any(tensor.axes != (axis,) for tensor in arrays):
        return None
    return axis if sum(value.nbytes for value in inputs.values() if isinstance(value, np.ndarray)) >= PIPELINED else None


def stream(op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes, axis: str) -> tuple[Streamed, Receipt]:
    """Run in chunks over NumPy arrays; the outputs are filled. Raises what Transfers.through raises."""
    each = {tensor.name: Split() for tensor in (*op.inputs, *op.outputs) if tensor.axes}
    done = room().transfers.through(variant, inputs, outputs, axes, axis, each)
    return done, joined([receipt(variant, launch) for launch in done.launches])


def launch(op: Op, variant: Variant, inputs: Arrays, axes: Axes) -> tuple[CudaLaunch, dict[str, DeviceArray]]:
    """Bind a variant to inputs that are on the device or are copied there, and to new outputs there; nothing runs yet.

    Raises InsufficientMemoryError, before anything is allocated, where all of it does not fit.
    """
    like = op.outputs_like(axes, variant.key)
    sizes = [int(np.prod(shape)) * named_dtype(dtype).itemsize for shape, dtype in like.values()]
    sizes += [value.nbytes for value in inputs.values() if isinstance(value, np.ndarray) and value.ndim]
    ensure_ready(variant.id, required_bytes([*sizes, variant.workspace(axes)]))
    outputs = {name: room().array(shape, named_dtype(dtype)) for name, (shape, dtype) in like.items()}
    there = {name: upload(value) if isinstance(value, np.ndarray) and value.ndim else value for name, value in inputs.items()}
    bound: Any = variant.bind(there, outputs, axes, 1)
    return bound, outputs


def receipt(variant: Variant, done: Launch) -> Receipt:
    """What a launch on the device says about itself."""
    assert isinstance(done, CudaLaunch)
    proof = done.proof
    return Receipt(
        kernel=variant.id,
        ran=done.ran,
        runs=done.runs,
        threads=done.threads_used,
        note="the simulator ran it, on the CPU" if proof.simulated else "",
        **{each.name: getattr(proof, each.name) for each in fields(proof)},
    )


def fetch(arrays: Mapping[str, DeviceArray], outputs: Arrays) -> None:
    """Copy results into the caller's arrays."""
    for name, array in arrays.items():
        download(array, into=outputs[name])


def joined(receipts: list[Receipt]) -> Receipt:
    """The receipt of several calls that belong together: that of the last, with the launches and times of all."""
    functions = tuple(dict.fromkeys(name for each in receipts for name in each.functions))
    return replace(
        receipts[-1],
        functions=functions,
        launches=sum(each.launches for each in receipts),
        device_ns=sum(each.device_ns for each in receipts),
    )
