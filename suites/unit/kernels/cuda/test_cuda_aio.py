"""Awaitable calls on a GPU or in the simulator: streams of their own, typed errors, and no memory left in use."""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import lazy_device
import numpy as np
import pytest
from failing_kernels import ON_GPU, failing, reference
from held_kernels import NAME, SECONDS, Held, held
from made_up_library import asarray
from own_registry import registered

from tritmark.harness.errors import DeviceFaultError, InvalidArgumentError, LaunchError
from tritmark.harness.spec import KernelKey, Tier
from tritmark.kernels import QuantizedLinear, aio, i2s_quantize, pack_weights
from tritmark.kernels.cuda.backend import Stream
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import launch
from tritmark.kernels.cuda.memory.lanes import Lanes
from tritmark.kernels.dispatch import offload

X = np.random.default_rng(0).standard_normal(2048, dtype=np.float32)
WEIGHTS = pack_weights(np.random.default_rng(1).integers(-1, 2, (64, 256), dtype=np.int8), 0.5)


@pytest.fixture
def kernel(cuda: CudaContext) -> Iterator[Held]:
    """The kernel `held` of i2s_quantize on the GPU."""
    made = Held()
    with registered(held(ON_GPU, "v1", made)):
        yield made
        made.release()
        assert made.running == 0


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not true():
            await asyncio.sleep(0.001)


def test_results_are_those_of_plain_calls(cuda: CudaContext) -> None:
    layer = QuantizedLinear(WEIGHTS, device="cuda")
    rows = X.reshape(-1, 256)

    async def main() -> None:
        q, ternary, product, one, other = await asyncio.gather(
            aio.i2s_quantize(X, 0.5, device="cuda"),
            aio.ternary_quantize(X, 128, device="cuda"),
            aio.matmul(rows, rows.T.copy(), mode="fp32"),
            aio.call(layer, rows),
            aio.call(layer, rows),
        )
        assert np.array_equal(q, reference(X, 0.5))
        assert np.array_equal(ternary.codes, (await aio.ternary_quantize(X, 128)).codes)
        assert product.shape == (8, 8)
        assert np.array_equal(one, layer(rows))
        assert np.array_equal(other, one)

    asyncio.run(main())


def test_errors_arrive_at_the_await(cuda: CudaContext) -> None:
    async def main() -> None:
        with pytest.raises(InvalidArgumentError, match="nan at index 1"):
            await aio.i2s_quantize(np.array([0, np.nan], np.float32), 0.5, device="cuda")
        every = await asyncio.gather(
            *(aio.i2s_quantize(X, 0.5, device="cuda", variant=name) for name in ("trap", "launch", "v1")),
            return_exceptions=True,
        )
        assert [type(each) for each in every] == [DeviceFaultError, LaunchError, np.ndarray]

    with registered(failing("trap", ON_GPU), failing("launch", ON_GPU)):
        asyncio.run(main())


def test_a_cancelled_call_keeps_its_device_memory_until_its_kernel_ended(cuda: CudaContext, kernel: Held) -> None:
    async def main() -> None:
        with cuda.pool.watch() as watch:
            task = asyncio.create_task(aio.i2s_quantize(X, 0.5, device="cuda", variant=NAME))
            await until(lambda: kernel.running == 1)
            task.cancel()
            await asyncio.sleep(0.01)
            assert not task.done()
            assert watch.held >= 5 * X.size
            kernel.release()
            with pytest.raises(asyncio.CancelledError):
                await task
            kernel.begun.clear()
            kernel.ended = 0
            del task
            await asyncio.sleep(0)
            gc.collect()
            assert not watch.leaks()

    asyncio.run(main())


def test_a_thousand_random_cancellations_leave_nothing(cuda: CudaContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """No allocation of the pool, and no more streams than calls at the same time."""
    streams: list[Stream] = []
    new = cuda.backend.new_stream

    def counted(*, apart: bool = False) -> Stream:
        streams.append(new(apart=apart))
        return streams[-1]

    monkeypatch.setattr(cuda.backend, "new_stream", counted)
    draw, ended = random.Random(0), Counter[str]()

    async def one() -> None:
        x = X[: draw.choice((64, 256))]
        scale = draw.choice((0.5, 0.5, 0.5, -1.0))
        task = asyncio.create_task(aio.i2s_quantize(x, scale, device="cuda"))
        for _ in range(draw.choice((0, 1, 2, 5, 20))):
            await asyncio.sleep(0)
        if draw.random() < 0.8:
            task.cancel()
        try:
            assert np.array_equal(await task, reference(x, scale))
        except asyncio.CancelledError:
            ended["cancelled"] += 1
        except InvalidArgumentError:
            ended["refused"] += 1
        else:
            ended["done"] += 1

    async def main() -> None:
        for _ in range(50):
            await asyncio.gather(*(one() for _ in range(20)))

    i2s_quantize(X, 0.5, device="cuda")
    with cuda.pool.watch() as watch:
        asyncio.run(main())
        gc.collect()
        assert ended.total() == 1000
        assert min(ended[each] for each in ("cancelled", "refused", "done")) > 20
        assert not watch.leaks()
        assert watch.held == 0
    idle = cuda.transfers._up._idle
    assert len(streams) <= aio.CALLS
    assert 1 <= len(set(map(id, idle))) == len(idle) <= aio.CALLS


# Streams

KEY = KernelKey("cuda", "made_up", "none", "float32")
TWICE = Kernel(file="made/up.cu", name="gemm_twice", threads=32, registers=32)


class LateDevice(lazy_device.Device):
    """Copies to the device without a stream arrive with the next copy from the device, as the driver allows."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[Callable[[], None]] = []

    def write(self, pointer: int, values: np.ndarray, stream: lazy_device.Stream | None = None) -> None:
        if stream is not None:
            super().write(pointer, values, stream)
            return
        kept = values.copy()
        self.late.append(lambda: lazy_device.Device.write(self, pointer, kept))

    def read(self, pointer: int, into: np.ndarray, stream: lazy_device.Stream | None = None) -> None:
        if stream is None:
            self.arrive()
        super().read(pointer, into, stream)

    def arrive(self) -> None:
        while self.late:
            self.late.pop(0)()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> CudaContext:
    """A made-up device with one kernel, twice its input."""
    device: Any = LateDevice()
    made = CudaContext(device)

    def work(x: Any, y: Any, n: Any) -> None:
        values = device.at(int(x), 4 * int(n)).view(np.float32)
        device.at(int(y), 4 * int(n)).view(np.float32)[:] = 2 * values

    device.kernels[TWICE.name] = work
    monkeypatch.setattr("tritmark.kernels.cuda.launch.launch.cuda_context", lambda: made)
    monkeypatch.setattr(launch, "KERNELS", {})
    return made


def bound(context: CudaContext, n: int) -> tuple[Any, Any]:
    """A launch of the kernel, and its output array."""

    def steps(call: launch.Call) -> tuple[Step, ...]:
        args = call.inputs["x"], call.outputs["y"], np.int64(n)
        return (Step(kernel=TWICE, grid=(n, 1, 1), block=(32, 1, 1), args=args),)

    variant = launch.variant(KEY, "twice", Tier.BASELINE, "for this test", (TWICE,), steps)
    x, y = context.array((n,), np.float32), context.array((n,), np.float32)
    x.write(np.arange(n, dtype=np.float32))
    return variant.bind({"x": x}, {"y": y}, {"n": n}, 1), y


def test_a_call_apart_has_a_stream_that_waits_for_its_copies(late: CudaContext) -> None:
    device: Any = late.backend
    with offload.apart():
        for _ in range(3):
            one, y = bound(late, 16)
            one.run()
            np.testing.assert_array_equal(y.numpy(), 2 * np.arange(16, dtype=np.float32))
    (number,) = {number for _, number in device.launched}
    assert device.streams[number] is not late.backend.stream


def test_a_stream_that_did_not_wait_would_be_noticed(late: CudaContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lanes, "_after_what_has_no_stream", lambda _: None)
    one, y = bound(late, 16)
    with offload.apart():
        one.run()
    assert not np.array_equal(y.numpy(), 2 * np.arange(16, dtype=np.float32))


def test_plain_calls_share_the_default_stream(late: CudaContext) -> None:
    device: Any = late.backend
    one, y = bound(late, 16)
    device.arrive()  # the default stream waits for copies without a stream
    one.run()
    np.testing.assert_array_equal(y.numpy(), 2 * np.arange(16, dtype=np.float32))
    assert [device.streams[number] for _, number in device.launched] == [late.backend.stream]


def test_calls_at_the_same_time_have_different_streams(late: CudaContext) -> None:
    with late.transfers.stream() as one, late.transfers.stream() as other:
        assert len({id(one), id(other), id(late.backend.stream)}) == 3
    with late.transfers.stream() as again:
        assert again in (one, other)


def test_a_stream_is_idle_after_an_error(late: CudaContext) -> None:
    work: list[str] = []

    def fail() -> None:
        with late.transfers.stream() as stream:
            stream.put(lambda: work.append("done"))  # type: ignore[attr-defined]
            raise LaunchError("refused", next_step="-")

    with pytest.raises(LaunchError):
        fail()
    assert work == ["done"]


def test_arrays_of_other_libraries_stay_in_the_default_stream(
    cuda: CudaContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their library may reuse memory in the order of that stream."""
    used: list[Stream] = []
    enqueue = cuda.backend.enqueue

    def watched(function: Any, grid: Any, block: Any, arguments: Any, shared: int, stream: Stream) -> None:
        used.append(stream)
        enqueue(function, grid, block, arguments, shared, stream)

    monkeypatch.setattr(cuda.backend, "enqueue", watched)
    x = asarray(X)
    found = asyncio.run(aio.i2s_quantize(x, 0.5))  # type: ignore[arg-type]
    assert np.array_equal(found.host(), reference(X, 0.5))  # type: ignore[attr-defined]
    assert used == [cuda.backend.stream]
    asyncio.run(aio.i2s_quantize(X, 0.5, device="cuda"))
    assert used[1] is not cuda.backend.stream
