"""Batches: order, streams, one join, errors that name the item."""

from __future__ import annotations

import random
from typing import Any

import lazy_device
import numpy as np
import pytest

from tritmark.harness.errors import DeviceFaultError, LaunchError
from tritmark.harness.spec import KernelKey, Tier
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import batch, launch
from tritmark.kernels.cuda.launch.batch import Batch

KEY = KernelKey("cuda", "made_up", "none", "float32")
TWICE, THRICE = (Kernel(file="made/up.cu", name=f"gemm_times_{times}", threads=32, registers=32) for times in (2, 3))


@pytest.fixture(params=[None, 1, 2])
def context(request, monkeypatch):
    """A simulated device with two kernels: twice and three times its input."""
    device: Any = lazy_device.Device(seed=request.param)
    made = CudaContext(device)
    for kernel, factor in ((TWICE, 2), (THRICE, 3)):

        def work(x, y, n, factor=factor):
            values = device.at(int(x), 4 * int(n)).view(np.float32)
            device.at(int(y), 4 * int(n)).view(np.float32)[:] = factor * values

        device.kernels[kernel.name] = work
    monkeypatch.setattr("tritmark.kernels.cuda.launch.launch.cuda_context", lambda: made)
    monkeypatch.setattr(batch, "cuda_context", lambda: made)
    monkeypatch.setattr(launch, "KERNELS", {})
    return made


def bound(context, kernel, n):
    """A launch, and its output array."""

    def steps(call):
        return (
            Step(
                kernel=kernel, grid=(n, 1, 1), block=(32, 1, 1), args=(call.inputs["x"], call.outputs["y"], np.int64(n))
            ),
        )

    variant = launch.variant(KEY, kernel.name, Tier.BASELINE, "for this test", (kernel,), steps)
    there = context.upload(np.arange(n, dtype=np.float32))
    y = context.array((n,), np.float32)
    y.write(np.full(n, np.float32(-1)))
    return variant.bind({"x": there}, {"y": y}, {"n": n}, 1), y


def filled(context, sizes):
    made, results = Batch(), []
    for number, n in enumerate(sizes):
        kernel = (TWICE, THRICE)[number % 2]
        one, y = bound(context, kernel, n)
        made.add(one, n, f"layer {number}")
        results.append((y, (2, 3)[number % 2]))
    return made, results


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 17, 64])
def test_all_are_done_whatever_the_order(context, count):
    sizes = [random.Random(count).choice([1, 5, 64, 64, 1000]) for _ in range(count)]
    made, results = filled(context, sizes)
    before = context.stats.copy()
    made.run()
    for y, factor in results:
        np.testing.assert_array_equal(y.numpy(), factor * np.arange(y.size, dtype=np.float32))
    counted = context.stats.since(before)
    assert counted.launches == count
    assert counted.kernel_ns == count * 1000.0
    assert all(item.launch.proof.timed_runs == 1 for item in made.items)
    made.run()
    assert context.stats.since(before).launches == 2 * count
    assert all(item.launch.proof.timed_runs == 1 for item in made.items)


def test_the_largest_first_and_equal_kernels_side_by_side(context):
    made, _ = filled(context, [5, 7, 900, 5, 5, 900, 5])
    order = [(item.work, item.launch.steps[0].kernel.name) for item in made.order()]
    assert [work for work, _ in order] == [900, 900, 7, 5, 5, 5, 5]
    assert order[3:] == [(5, TWICE.name)] * 3 + [(5, THRICE.name)]
    made.run()
    assert [name for name, _ in context.backend.launched] == [name for _, name in order]


def test_work_is_spread_evenly(context):
    made, _ = filled(context, [100, 50, 50, 30, 20, 10, 10, 10, 10, 10])
    made.run()
    load: dict[int, int] = {}
    for (_, stream), item in zip(context.backend.launched, made.order(), strict=True):
        load[stream] = load.get(stream, 0) + item.work
    assert sorted(load.values()) == [60, 70, 70, 100]


def test_there_is_one_join(context, monkeypatch):
    made, _ = filled(context, [5] * 9)
    waits = []
    for name in ("Stream", "Event"):
        kind = getattr(lazy_device, name)

        def waiting(self, real=kind.synchronize, name=name):
            waits.append(name)
            return real(self)

        monkeypatch.setattr(kind, "synchronize", waiting)
    synchronize = lazy_device.Stream.synchronize
    asked = []

    def asking():
        asked.append(1)
        synchronize(context.backend.stream)

    monkeypatch.setattr(context.backend.stream, "synchronize", asking)
    made.run()
    assert asked == [1]


def test_nothing_starts_before_what_was_there_first(context, monkeypatch):
    def progress():  # all that may run does, except in the context's stream
        for stream in context.backend.streams[1:]:
            stream.synchronize()

    monkeypatch.setattr(context.backend, "progress", progress)
    one, y = bound(context, TWICE, 10)
    # Its input is not written yet, in the context's stream.
    context.backend.stream.put(lambda: one._call.inputs["x"].write(np.full(10, np.float32(50))))
    made = Batch()
    made.add(one, 10)
    made.run()
    np.testing.assert_array_equal(y.numpy(), np.full(10, np.float32(100)))


def test_empty(context):
    Batch().run()
    assert not context.backend.launched


def test_a_refused_launch_names_its_item(context):
    made, _ = filled(context, [5, 900, 7])
    context.backend.refused = {THRICE.name}
    with pytest.raises(LaunchError, match="layer 1: gemm_times_3 is refused"):
        made.run()
    assert all(stream.done == len(stream.queue) for stream in context.backend.streams[1:])


def test_a_fault_names_its_item_where_each_is_waited_for(context, monkeypatch):
    made, _ = filled(context, [5, 900, 7])
    enqueue = context.backend.enqueue

    def breaks(function, *rest):
        if function.name == THRICE.name:
            raise DeviceFaultError("an illegal address", next_step="look")
        enqueue(function, *rest)

    monkeypatch.setattr(context.backend, "enqueue", breaks)
    with pytest.raises(DeviceFaultError, match=r"^layer 1: an illegal address"):
        made.run()
    # A GPU reports later, so any of its items may be at fault.
    context.backend.simulated = False
    monkeypatch.delenv(batch.BLOCKING, raising=False)
    made, _ = filled(context, [900, 5, 7])
    with pytest.raises(
        DeviceFaultError,
        match=r"^one of layer 0, layer 2, layer 1: an illegal address; next: set CUDA_LAUNCH_BLOCKING=1",
    ):
        made.run()


def test_a_fault_that_shows_at_the_join(context, monkeypatch):
    made, _ = filled(context, [900, 5])
    context.backend.simulated = False

    def breaks():
        raise DeviceFaultError("an illegal address", next_step="look")

    monkeypatch.setattr(context.backend.stream, "synchronize", breaks)
    with pytest.raises(DeviceFaultError, match="one of layer 0, layer 1: an illegal address"):
        made.run()
