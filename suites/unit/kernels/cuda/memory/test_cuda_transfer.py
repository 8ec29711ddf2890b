"""Copies in chunks: the correct bytes in any order of the streams, and counts."""

from __future__ import annotations

import math
import threading

import lazy_device
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import DeviceError, InsufficientMemoryError, InvalidArgumentError
from tritmark.harness.machine.cpu import usable_cores
from tritmark.harness.spec import KernelKey, Tier
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import launch
from tritmark.kernels.cuda.memory import lanes, transfer
from tritmark.kernels.cuda.memory.lanes import pieces
from tritmark.kernels.cuda.memory.transfer import Split, Transfers
from tritmark.kernels.i2s_quantize import cuda as i2s_quantize
from tritmark.kernels.ternary_quantize import cuda as ternary_quantize_variants
from tritmark.kernels.ternary_quantize.api import ternary_quantize

CHUNK = 1024
SEEDS = st.one_of(st.none(), st.integers(0, 1 << 30))
DTYPES = [np.int8, np.float32, np.float64, ml_dtypes.bfloat16, np.uint16]
BLOCK = 32
KERNEL = Kernel(file="made/up.cu", name="ternary_gpu_made_up", threads=32, registers=32)
KEY = KernelKey("cuda", "made_up", "none", "int8")


def a_context(seed=None, memory=1 << 26):
    context = CudaContext(lazy_device.Device(memory, seed))  # type: ignore[arg-type]
    context.transfers = Transfers(context.backend, context.pool, CHUNK)
    return context


def values_of(shape, dtype, strided):
    count = math.prod(shape)
    flat = np.arange(count * (2 if strided else 1), dtype=np.uint64) * 2654435761 % 251
    if not strided:
        return flat.astype(np.uint8).astype(dtype).reshape(shape)
    wide = flat.astype(np.uint8).astype(dtype).reshape(*shape[:-1], 2 * shape[-1])
    return wide[..., : shape[-1]]  # rows apart


SHAPES = (
    st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple)
    | st.tuples(st.integers(1, 5000))
    | st.just(())
    | st.just((3, 0))
)


@given(SHAPES, st.sampled_from(DTYPES), st.booleans(), SEEDS)
def test_there_and_back(shape, dtype, strided, seed):
    context = a_context(seed)
    values = values_of(shape, dtype, strided and bool(shape))
    there = context.transfers.upload(values)
    assert there.shape == values.shape
    assert there.dtype == values.dtype
    assert there.contiguous
    np.testing.assert_array_equal(there.numpy(), values)
    np.testing.assert_array_equal(context.transfers.download(there), values)
    into = values_of(shape, dtype, strided and bool(shape)) * 0
    assert context.transfers.download(there, into) is into
    np.testing.assert_array_equal(into, values)


def test_strided_results_leave_the_gaps_alone():
    context = a_context()
    values = values_of((50, 30), np.float32, strided=False)
    wide = np.full((50, 64), np.float32(7))
    context.transfers.download(context.transfers.upload(values), wide[:, 3:33])
    np.testing.assert_array_equal(wide[:, 3:33], values)
    assert (np.delete(wide, np.s_[3:33], axis=1) == 7).all()


def test_strided_arrays_on_the_device():
    context = a_context()
    whole = values_of((40, 20), np.float32, strided=False)
    rows = context.transfers.upload(whole).view((40, 10), strides=(80, 4))
    np.testing.assert_array_equal(context.transfers.download(rows), whole[:, :10])


@given(SHAPES, st.booleans(), st.integers(1, 3000))
def test_pieces_cover_an_array_once_and_in_order(shape, strided, nbytes):
    values = values_of(shape, np.float32, strided and bool(shape))
    nbytes = max(4, nbytes)
    at, parts = 0, []
    for offset, piece in pieces(values, nbytes):
        assert offset == at
        assert piece.nbytes <= nbytes
        assert np.shares_memory(piece, values) or not piece.size
        parts.append(piece.reshape(-1))
        at += piece.nbytes
    assert at == values.nbytes
    np.testing.assert_array_equal(np.concatenate(parts), values.reshape(-1))


def test_counts():
    context = a_context()
    small, large = np.zeros(CHUNK, np.uint8), np.zeros(3 * CHUNK + 1, np.uint8)
    first = context.transfers.upload(small)
    assert (context.stats.uploads, context.stats.bytes_uploaded) == (1, CHUNK)
    before = context.stats.copy()
    second = context.transfers.upload(large)
    assert (context.stats.since(before).uploads, context.stats.since(before).bytes_uploaded) == (7, large.nbytes)
    context.transfers.download(first)
    assert (context.stats.downloads, context.stats.bytes_downloaded) == (1, CHUNK)
    context.transfers.download(second)
    assert (context.stats.downloads, context.stats.bytes_downloaded) == (8, CHUNK + large.nbytes)
    context.stats.reset()
    assert context.stats == type(context.stats)()


def test_small_arrays_pin_nothing(monkeypatch):
    context = a_context()
    monkeypatch.setattr(context.backend, "pinned", lambda nbytes: pytest.fail("pinned"))
    values = np.arange(CHUNK // 4, dtype=np.float32)
    np.testing.assert_array_equal(context.transfers.download(context.transfers.upload(values)), values)


@given(st.integers(1, 4 * CHUNK), st.integers(0, 9), SEEDS)
def test_pinned_arrays_are_copied_in_one_piece(nbytes, begin, seed):
    """Any other work of the device; complete on return."""
    context = a_context(seed)
    whole = context.backend.pinned(4 * CHUNK + 9)
    values = whole[begin : begin + nbytes]
    values[:] = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    there, before = context.transfers.upload(values), len(context.backend.pinned_memory)
    wanted = values.copy()
    values[:] = 1
    np.testing.assert_array_equal(there.numpy(), wanted)
    assert context.transfers.download(there, values) is values
    np.testing.assert_array_equal(values, wanted)
    assert (context.stats.uploads, context.stats.downloads) == (1, 2)
    assert len(context.backend.pinned_memory) == before  # no lanes were made


def test_arrays_that_are_pinned_in_part_go_over_lanes():
    context = a_context()
    whole = context.backend.pinned(4 * CHUNK)
    context.backend.pinned_memory[-1] = whole[: 3 * CHUNK]
    whole[:] = np.arange(whole.size) % 251
    there = context.transfers.upload(whole)
    assert context.stats.uploads == 8
    np.testing.assert_array_equal(context.transfers.download(there), whole)


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("way", ["write", "download"])
def test_large_copies_come_behind_copies_without_a_stream(monkeypatch, way, pinned):
    """They may return before they are complete, until a copy from the device."""
    context = a_context()
    backend, host = context.backend, context.backend.pinned(3 * CHUNK) if pinned else np.zeros(3 * CHUNK, np.uint8)
    host[:] = 1
    there = context.transfers.upload(host)
    late, write, read = [], backend.write, backend.read

    def writes(pointer, values, stream=None):
        late.append((pointer, values.copy())) if stream is None else write(pointer, values, stream)

    def reads(pointer, into, stream=None):
        while stream is None and late:
            write(*late.pop(0))
        read(pointer, into, stream)

    monkeypatch.setattr(backend, "write", writes)
    monkeypatch.setattr(backend, "read", reads)
    there.write(np.full(3 * CHUNK, 2, np.uint8))
    if way == "write":
        context.transfers.write(there, host)
        assert (there.numpy() == 1).all()
    else:
        assert (context.transfers.download(there, host) == 2).all()


def test_a_stream_serves_pinned_arrays_again():
    context = a_context()
    pinned = context.backend.pinned(2 * CHUNK)
    pinned[:] = 3
    context.transfers.upload(pinned)
    streams = len(context.backend.streams)
    for _ in range(5):
        context.transfers.upload(pinned)
    assert len(context.backend.streams) == streams


@pytest.mark.parametrize("into", [np.empty(5, np.float32), np.empty(6, np.float64), np.empty((2, 3), np.float32)])
def test_results_into_the_wrong_array(into):
    context = a_context()
    there = context.transfers.upload(np.ones(6, np.float32))
    with pytest.raises(InvalidArgumentError, match=r"legal: float32 \(6,\)"):
        context.transfers.download(there, into)


@pytest.mark.parametrize("direction", ["write", "read"])
def test_a_lane_that_fails_ends_the_others(monkeypatch, direction):
    """And no work is in progress when the error is raised."""
    context = a_context()
    whole = np.zeros(64 * CHUNK, np.uint8)
    there = context.transfers.upload(whole)
    calls, real = [], getattr(context.backend, direction)

    def fails_at_the_third(*arguments):
        calls.append(threading.current_thread())
        if len(calls) == 3:
            raise DeviceError("planted", next_step="nothing")
        real(*arguments)

    monkeypatch.setattr(context.backend, direction, fails_at_the_third)
    with pytest.raises(DeviceError, match="planted"):
        context.transfers.upload(whole) if direction == "write" else context.transfers.download(there)
    assert len(calls) < 64
    assert all(stream.done == len(stream.queue) for stream in context.backend.streams)
    monkeypatch.setattr(context.backend, direction, real)
    np.testing.assert_array_equal(context.transfers.download(context.transfers.upload(whole)), whole)


def test_lanes_work_in_threads_of_their_own(monkeypatch):
    """All copy at the same time: each waits for the others before its first piece."""
    context = a_context()
    context.transfers.upload(np.zeros(2 * CHUNK, np.uint8))  # made once
    count = min(lanes.COPIERS, usable_cores())
    threads, together, real = set(), threading.Barrier(count), context.backend.write

    def noted(*arguments):
        mine = threading.current_thread()
        if mine not in threads:
            threads.add(mine)
            together.wait(timeout=60)
        real(*arguments)

    monkeypatch.setattr(context.backend, "write", noted)
    context.transfers.upload(np.zeros(64 * CHUNK, np.uint8))
    assert len(threads) == count


def made_up(device):
    """A blockwise op: codes are the signs, `sums` has one sum for each block of 32, times an offset for all; NaN is
    forbidden."""

    def kernel(x, offset, codes, sums, n, bad):
        values = device.at(int(x), 4 * int(n)).view(np.float32)
        wrong = np.flatnonzero(~np.isfinite(values))
        if wrong.size:
            at = device.at(int(bad), 8).view(np.uint64)
            at[0] = min(int(at[0]), int(wrong[0]))
        blocks = -(-int(n) // BLOCK)
        padded = np.zeros(blocks * BLOCK, np.float32)
        padded[: int(n)] = values
        device.at(int(codes), int(n)).view(np.int8)[:] = np.sign(np.nan_to_num(values)).astype(np.int8)
        by = device.at(int(offset), 4).view(np.float32)[0]
        device.at(int(sums), 4 * blocks).view(np.float32)[:] = padded.reshape(-1, BLOCK).sum(axis=1) + by

    def steps(call):
        args = (
            call.inputs["x"],
            call.inputs["offset"],
            call.outputs["codes"],
            call.outputs["sums"],
            np.int64(call.axes["n"]),
            call.bad,
        )
        return (Step(kernel=KERNEL, grid=(1, 1, 1), block=(32, 1, 1), args=args),)

    device.kernels[KERNEL.name] = kernel
    return launch.variant(
        KEY, "made_up", Tier.BASELINE, "for this test", (KERNEL,), steps, workspace=lambda axes: axes["n"]
    )


SPLIT = {"x": Split(), "codes": Split(), "sums": Split(units=BLOCK)}


@pytest.fixture
def in_context(monkeypatch):
    """Let launches use this context."""

    def use(context):
        monkeypatch.setattr("tritmark.kernels.cuda.launch.launch.cuda_context", lambda: context)
        return made_up(context.backend)

    kernels = dict(launch.KERNELS)
    yield use
    launch.KERNELS.clear()
    launch.KERNELS.update(kernels)


def run(context, variant, x, outputs=None, split=None, multiple=BLOCK):
    n = len(x)
    outputs = outputs or {"codes": np.full(n, 99, np.int8), "sums": np.full(-(-n // BLOCK), np.float32(99))}
    inputs = {"x": x, "offset": np.array([3], np.float32), "scale": 2.0}
    return context.transfers.through(
        variant, inputs, outputs, {"n": n, "block": BLOCK}, "n", split or SPLIT, multiple
    ), outputs


def expected(x):
    padded = np.zeros(-(-len(x) // BLOCK) * BLOCK, np.float32)
    padded[: len(x)] = x
    return {"codes": np.sign(x).astype(np.int8), "sums": padded.reshape(-1, BLOCK).sum(axis=1) + np.float32(3)}


@pytest.mark.parametrize("n", [1, 31, 32, 33, 256, 257, 288, 511, 512, 513, 767, 768, 1024, 5000])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_through(in_context, n, seed):
    context = a_context(seed)
    variant = in_context(context)
    x = ((np.arange(n) * 7919) % 201 - 100).astype(np.float32)
    done, outputs = run(context, variant, x)
    for name, right in expected(x).items():
        np.testing.assert_array_equal(outputs[name], right)
    assert done.bad == -1
    assert done.chunks == math.ceil(n / (CHUNK // 4))
    assert sum(each.runs for each in done.launches) == done.chunks
    assert sum(each.proof.timed_runs for each in done.launches) == done.chunks
    assert context.stats.launches == done.chunks
    assert context.stats.bytes_uploaded >= x.nbytes
    del done
    assert not context.pool.leaks()


def test_through_overlaps(in_context, monkeypatch):
    """The results of one chunk are fetched while the next two are sent and computed, and no more."""
    context = a_context()
    variant = in_context(context)
    changed, count = threading.Condition(), 20
    launched: list[int] = []
    fetched: list[int] = []
    enqueue, fetch = context.backend.enqueue, context.transfers._down.fetch

    def counted(*arguments):
        enqueue(*arguments)
        with changed:
            launched.append(len(launched) - len(fetched) // 2)  # codes and sums
            changed.notify()

    def late(pointer, into):
        with changed:
            wanted = min(count, len(fetched) // 2 + transfer.SLOTS)
            assert changed.wait_for(lambda: len(launched) >= wanted, timeout=60)
        fetch(pointer, into)
        fetched.append(pointer)

    monkeypatch.setattr(context.backend, "enqueue", counted)
    monkeypatch.setattr(context.transfers._down, "fetch", late)
    x = np.ones(256 * count, np.float32)
    _, outputs = run(context, variant, x)
    np.testing.assert_array_equal(outputs["codes"], np.sign(x))
    assert len(launched) == count
    assert max(launched) == transfer.SLOTS - 1


def test_through_arrays_of_any_strides(in_context):
    context = a_context()
    variant = in_context(context)
    x = np.arange(-1000, 1000, dtype=np.float32)[::2]
    codes = np.full(2000, 99, np.int8)
    _, outputs = run(context, variant, x, {"codes": codes[::2], "sums": np.zeros(32, np.float32)})
    np.testing.assert_array_equal(outputs["codes"], np.sign(x))
    assert (codes[1::2] == 99).all()


@pytest.mark.parametrize("at", [(0,), (255,), (256,), (700, 3000), (3000, 10), (4999,), (1500, 1400)])
@pytest.mark.parametrize("seed", [None, 5])
def test_through_finds_the_first_forbidden_element(in_context, at, seed):
    context = a_context(seed)
    variant = in_context(context)
    x = np.ones(5000, np.float32)
    x[list(at)] = np.nan
    done, outputs = run(context, variant, x)
    assert done.bad == min(at)
    assert (outputs["codes"][min(at) // 256 * 256 :] == 99).all()
    del done
    assert not context.pool.leaks()
    context.backend.synchronize()  # no work uses memory that was freed
    done, _ = run(context, variant, np.ones(5000, np.float32))
    assert done.bad == -1


def test_through_wants_memory_first(in_context):
    context = a_context(memory=4096)
    variant = in_context(context)
    with pytest.raises(InsufficientMemoryError) as caught:
        run(context, variant, np.ones(5000, np.float32))
    assert caught.value.required > 4096 >= caught.value.available
    assert not context.backend.live
    assert not context.backend.launched


def test_through_takes_little_memory(in_context):
    context = a_context()
    variant = in_context(context)
    with context.pool.watch() as watch:
        run(context, variant, np.ones(1 << 16, np.float32))
    assert watch.peak < 3 * 3 * CHUNK


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"multiple": 48}, "multiple"),
        ({"split": {**SPLIT, "nothing": Split()}}, "nothing"),
        ({"split": {**SPLIT, "sums": Split(units=16)}}, "sums"),
        ({"outputs": {"codes": np.zeros(99, np.int8), "sums": np.zeros(4, np.float32)}}, "codes"),
    ],
)
def test_through_checks_lengths(in_context, change, word):
    context = a_context()
    variant = in_context(context)
    with pytest.raises(InvalidArgumentError, match=word):
        run(context, variant, np.ones(100, np.float32), **change)
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        run(context, variant, np.ones(0, np.float32))


def test_a_packed_format_ends_with_a_whole_group():
    split = Split(units=128, entries=32)
    assert [split.length(units) for units in (0, 1, 128, 129, 256)] == [0, 32, 32, 64, 64]


@pytest.mark.parametrize(
    "variant", [each for each in i2s_quantize.VARIANTS if each.key.format == "none"], ids=lambda variant: variant.name
)
@pytest.mark.parametrize("n", [1, 1024, 1025, 5000])
def test_i2s_quantize_through(cuda, variant, n):
    x = np.linspace(-3, 3, n, dtype=np.float32)
    q = np.full(n, 99, np.int8)
    transfers = Transfers(cuda.backend, cuda.pool, 4096)
    scale = np.float32(0.7)
    split = {"x": Split(), "q": Split()}
    done = transfers.through(variant, {"x": x, "scale": scale}, {"q": q}, {"n": n}, "n", split)
    np.testing.assert_array_equal(q, np.rint(np.clip(x / scale, -2, 1)).astype(np.int8))
    assert done.chunks == math.ceil(n / 1024)
    assert done.bad == -1
    x[n // 2] = np.inf
    assert transfers.through(variant, {"x": x, "scale": scale}, {"q": q}, {"n": n}, "n", split).bad == n // 2


@pytest.mark.parametrize("n", [100, 5000])
def test_packed_ternary_quantize_through(cuda, n):
    """Groups of 128 codes take 32 bytes, including the last one; blocks of 64 share a scale."""
    x = np.sin(np.arange(n, dtype=np.float32)) * np.arange(n, dtype=np.float32)
    right = ternary_quantize(x, 64, packed=True)
    variant = next(each for each in ternary_quantize_variants.VARIANTS if each.key.format == "i2_s_x86")
    got = {"codes": np.full_like(right.packed, 99), "scales": np.full_like(right.scales, 99)}
    split = {"x": Split(), "codes": Split(128, 32), "scales": Split(64)}
    transfers = Transfers(cuda.backend, cuda.pool, 4096)
    done = transfers.through(variant, {"x": x}, got, {"n": n, "block": 64}, "n", split, multiple=128)
    assert done.chunks == math.ceil(n / 1024)
    np.testing.assert_array_equal(got["codes"], right.packed)
    np.testing.assert_array_equal(got["scales"], right.scales)


def test_on_the_device(cuda):
    """Large enough for several pieces: on a GPU, or in the simulator."""
    rng = np.random.default_rng(3)
    values = rng.integers(0, 255, 3 * lanes.LONG_PIECE + 12345, np.uint8)
    before = cuda.stats.copy()
    there = cuda.transfers.upload(values)
    np.testing.assert_array_equal(cuda.transfers.download(there), values)
    counted = cuda.stats.since(before)
    assert (counted.bytes_uploaded, counted.bytes_downloaded) == (values.nbytes, values.nbytes)
    rows = values[: 1 << 20].reshape(1024, 1024)[:, :1000]
    np.testing.assert_array_equal(cuda.transfers.download(cuda.transfers.upload(rows)), rows)
