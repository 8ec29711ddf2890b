"""Device memory that one call takes on a device with its own memory, and the cost of copying its arguments there and
back."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.record import DeviceMemory, Transfer
from tritmark.harness.spec import Arrays, Axes, Device, Op, Variant
from tritmark.harness.validate.cases import is_array


@dataclass(frozen=True, slots=True)
class Usage:
    """None: not reported or not timed."""

    memory: DeviceMemory | None = None
    upload: Transfer | None = None
    download: Transfer | None = None


def usage(device: Device, op: Op, variant: Variant, inputs: Arrays, axes: Axes) -> Usage:
    """Bind and run once on new arrays. `inputs` are encoded for the variant's format. Exceptions of device and variant
    are passed on."""
    if device.memory is None:
        return Usage()
    memory = device.memory()
    there = {name: np.ascontiguousarray(value) for name, value in inputs.items() if is_array(value)}
    back = {
        name: np.empty(shape, named_dtype(dtype)) for name, (shape, dtype) in op.outputs_like(axes, variant.key).items()
    }
    upload = download = 0
    with memory.watch() as seen:
        arrays = {
            name: memory.view(memory.allocate(max(1, each.nbytes)), 0, each.shape, each.dtype)
            for name, each in (there | back).items()
        }
        for _ in range(2):  # the first copy also allocates staging buffers and pages
            begun = perf_counter_ns()
            for name, each in there.items():
                memory.write(arrays[name], each)
            upload = perf_counter_ns() - begun
        bound = {name: arrays.get(name, value) for name, value in inputs.items()}
        variant.bind(bound, {name: arrays[name] for name in back}, axes, 1).run()
        for _ in range(2):
            begun = perf_counter_ns()
            for name, each in back.items():
                memory.read(arrays[name], each)
            download = perf_counter_ns() - begun
    read, written = (sum(each.nbytes for each in side.values()) for side in (there, back))
    found = DeviceMemory(inputs=read, outputs=written, workspace=variant.workspace(axes), peak=seen.peak)
    return Usage(found, Transfer(nbytes=read, ns=upload), Transfer(nbytes=written, ns=download))
