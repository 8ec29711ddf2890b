"""Device memory of one call on a device with its own memory, counted by its allocator, and copies, timed."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import numpy as np

from tritmark.harness.spec import Device, KernelKey
from tritmark.harness.validate.usage import Usage, usage
from tritmark.kernels import PROVIDER
from tritmark.kernels.native.cpu import DEVICE

TOTAL = 1 << 20
AXES = {"n": 1000}


class Watch:
    """Peak of the allocations."""

    peak: int | None = 0

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *problem: object) -> None: ...


class Memory:
    """A device's memory that lies on the host and is counted."""

    cache = None

    def __init__(self) -> None:
        self.used = 0
        self.seen = Watch()

    def available(self) -> int:
        return TOTAL - self.used

    def watch(self) -> Watch:
        return self.seen

    def allocate(self, nbytes: int) -> Any:
        taken = -(-nbytes // 256) * 256
        self.used += taken
        if self.seen.peak is not None:
            self.seen.peak = max(self.seen.peak, self.used)
        buffer = np.empty(taken, np.uint8)
        weakref.finalize(buffer, self._give, taken)
        return buffer[:nbytes]

    def _give(self, taken: int) -> None:
        self.used -= taken

    def view(
        self, buffer: Any, offset: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None
    ) -> Any:
        return np.ndarray(shape, dtype, buffer=buffer, offset=offset, strides=strides)

    def write(self, array: Any, values: Any) -> None:
        array[...] = values

    def read(self, array: Any, into: Any) -> None:
        into[...] = array


def measured(device: Device) -> Usage:
    key = KernelKey("cpu", "i2s_quantize", "none", "int8")
    op = next(op for op in PROVIDER.ops if op.name == key.op)
    variant = next(each for each in PROVIDER.variants if each.key == key and each.name == "scalar")
    inputs = op.encode(op.generate(AXES, "normal", np.random.default_rng(0)), AXES, key.format)
    return usage(device, op, variant, inputs, AXES)


def test_the_host_has_no_memory_apart() -> None:
    assert measured(DEVICE) == Usage()


def test_bytes_are_counted_and_given_back() -> None:
    memory = Memory()
    found = measured(replace(DEVICE, memory=lambda: memory))
    assert found.memory is not None
    assert (found.memory.inputs, found.memory.outputs, found.memory.workspace) == (4000, 1000, 0)
    assert found.memory.peak == 4096 + 1024
    assert found.memory.excess == 120 / 5000
    assert found.upload is not None
    assert found.download is not None
    assert (found.upload.nbytes, found.download.nbytes) == (4000, 1000)
    assert found.upload.ns > 0
    assert found.download.ns > 0
    assert found.upload.rate == 4000 * 1e9 / found.upload.ns
    assert memory.used == 0


def test_what_nobody_counts_is_no_figure() -> None:
    memory = Memory()
    memory.seen.peak = None
    found = measured(replace(DEVICE, memory=lambda: memory))
    assert found.memory is not None
    assert found.memory.peak is None
    assert found.memory.excess is None
