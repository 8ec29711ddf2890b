"""The memory dimension judged in the test's own process, which the harness does in fresh ones only."""

from __future__ import annotations

import os

from tritmark.harness.record import MemoryUse
from tritmark.harness.spec import Arrays, Axes, Device, Op, Variant
from tritmark.harness.validate import memory_tasks as tasks
from tritmark.harness.validate.memory import judged, observe


def memory_use(device: Device, op: Op, variant: Variant, inputs: Arrays, axes: Axes, *, threads: int) -> MemoryUse:
    """`inputs` are encoded for the variant's format. What device or variant raise is passed on."""
    here = tasks.LocalPlace(op, device, variant)
    try:
        return judged(observe(lambda task, *args: task(here, *args), os.getpid(), inputs, axes, threads=threads))
    finally:
        tasks.release(here)
