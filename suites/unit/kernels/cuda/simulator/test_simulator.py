"""The simulator computes what CUDA defines: simulated.cu beside this file against NumPy, in many orders of blocks and
threads."""

from __future__ import annotations

import subprocess
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.caches import CACHE
from tritmark.kernels.cuda.kernel import Dim, Kernel
from tritmark.kernels.cuda.simulator import SimulatorBackend, memory, toolchain

SOURCE = Path(__file__).with_name("simulated.cu")
BACKEND = SimulatorBackend()
FULL = 0xFFFFFFFF
BITS = np.arange(1 << 16, dtype=np.uint16)


def unwanted(into: Path) -> None:
    pytest.fail(f"{into} is compiled anew")


def writer(content: bytes) -> Callable[[Path], None]:
    """What writes this as code."""

    def make(into: Path) -> None:
        into.write_bytes(content)

    return make


@pytest.mark.parametrize("cut", [0, 1000, None])
@pytest.mark.parametrize("which", [".so", ".sha256"])
def test_damaged_code_is_compiled_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: int | None, which: str
) -> None:
    """Code that is cut short would end the process of a correct kernel by SIGBUS."""
    monkeypatch.setenv(CACHE, str(tmp_path))

    def make(into: Path) -> None:
        into.write_bytes(bytes(range(256)) * 16)

    made = toolchain._kept(["test"], make, "test")
    whole = made.read_bytes()
    assert toolchain._kept(["test"], unwanted, "test") == made
    damaged = made.with_suffix(which)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + b"?" if cut is None else content[: min(cut, len(content) - 1)])
    assert toolchain._kept(["test"], make, "test") == made
    assert made.read_bytes() == whole
    assert f"{made} is damaged, so it is compiled anew" in caplog.text
    assert toolchain._kept(["test"], unwanted, "test") == made
    assert not list(made.parent.glob("*.tmp"))


def test_a_process_that_ended_between_code_and_digest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    made = toolchain._kept(["test"], writer(b"one"), "test")
    made.with_suffix(".sha256").unlink()
    toolchain._kept(["test"], writer(b"two"), "test")
    assert made.read_bytes() == b"two"
    assert not caplog.text


@cache
def _function(name: str) -> Any:
    return BACKEND.function(Kernel(file=str(SOURCE), name=f"sim_{name}", threads=1024, registers=64))


def launch(
    name: str, grid: int | Dim, block: int | Dim, args: Sequence[Any], *, shared: int = 0, seed: int = 0
) -> None:
    """Run a kernel; arrays are copied to the device and back into the caller's."""
    BACKEND.seed = seed
    held = {}
    packed = []
    for i, arg in enumerate(args):
        if isinstance(arg, np.ndarray):
            held[i] = BACKEND.allocate(arg.nbytes)
            BACKEND.write(held[i].pointer, arg)
            packed.append(np.uint64(held[i].pointer))
        else:
            packed.append(arg)
    function = _function(name)
    dims = [(size, 1, 1) if isinstance(size, int) else size for size in (grid, block)]
    BACKEND.enqueue(function, dims[0], dims[1], BACKEND.arguments(function, packed), shared, BACKEND.stream)
    for i, there in held.items():
        BACKEND.read(there.pointer, args[i])


def test_says_what_it_is() -> None:
    assert BACKEND.simulated
    assert BACKEND.info.uuid == "SIMULATOR"
    assert "simulated" in BACKEND.info.name
    begin, end = BACKEND.new_event(), BACKEND.new_event()
    begin.record(BACKEND.stream)
    end.record(BACKEND.stream)
    assert end.since(begin) == 0.0
    assert len(_function("scale").code_hash) == 64
    assert _function("scale").shared == 0
    assert _function("block_sum").shared == 4
    assert _function("innocent").shared == 4 * 96


def test_importing_it_costs_no_compiler() -> None:
    code = (
        "import tritmark.kernels.cuda.simulator, tritmark.kernels.cuda.simulator.toolchain as toolchain; "
        "assert not toolchain.compiler.cache_info().currsize"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [1, 255, 256, 1000])
def test_elementwise(n: int, seed: int) -> None:
    x = np.random.default_rng(n).standard_normal(n, np.float32)
    y = np.empty(n, np.float32)
    launch("scale", 3, 64, [x, y, np.float32(3), np.uint64(n)], seed=seed)
    np.testing.assert_array_equal(y, x * np.float32(3))


@pytest.mark.parametrize("seed", range(5))
def test_every_thread_runs_once(seed: int) -> None:
    places = np.zeros(30 * 48, np.uint32)
    launch("places", (2, 3, 5), (4, 3, 4), [places], seed=seed)
    np.testing.assert_array_equal(places, (1 + np.arange(48) + 1000 * np.arange(30)[:, None]).ravel())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("threads", [32, 256, 1024])
def test_block_sum(threads: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(-1000, 1000, (4, threads), np.int32)
    y = np.empty_like(x)
    launch("block_sum", 4, threads, [x, y], shared=4 * threads // 32, seed=seed)
    np.testing.assert_array_equal(y, np.broadcast_to(x.sum(1, keepdims=True), x.shape))


@given(st.lists(st.integers(0, 1), min_size=1, max_size=100), st.integers(0, 100))
def test_barrier_votes(flags: list[int], seed: int) -> None:
    x = np.array(flags, np.int32)
    y = np.empty_like(x)
    launch("barrier_votes", 1, len(flags), [x, y], seed=seed)
    assert set(y.tolist()) == {sum(flags) * 4 + all(flags) * 2 + any(flags)}


def _source(kind: int, lane: int, argument: int, width: int) -> int:
    """The lane that a shuffle reads from, by the programming guide."""
    first = lane // width * width
    if kind == 0:
        return first + argument % width
    if kind == 1:
        return lane - argument if lane - argument >= first else lane
    if kind == 2:
        return lane + argument if lane + argument < first + width else lane
    return lane ^ argument if lane ^ argument < first + width else lane


@given(
    st.integers(0, 3),
    st.integers(0, 31),
    st.sampled_from([1, 2, 4, 8, 16, 32]),
    st.integers(1, FULL),
    st.integers(0, 100),
)
def test_shuffles(kind: int, argument: int, width: int, mask: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal(32)
    y = np.full(32, np.nan)
    launch("shuffle", 1, 32, [x, y, np.int32(kind), np.int32(argument), np.int32(width), np.uint32(FULL)], seed=seed)
    sources = [_source(kind, lane, argument, width) for lane in range(32)]
    np.testing.assert_array_equal(y, x[sources])
    # Lanes outside the mask take no part, and reading from them does not give their value.
    launch(
        "shuffle_apart", 1, 32, [x, y, np.int32(kind), np.int32(argument), np.int32(width), np.uint32(mask)], seed=seed
    )
    for lane, source in enumerate(sources):
        if mask >> lane & 1:
            assert (y[lane] == x[source]) == bool(mask >> source & 1)
        else:
            assert y[lane] == 0


@given(st.lists(st.integers(-1, 1), min_size=32, max_size=32), st.integers(1, FULL), st.integers(0, 100))
def test_votes(values: list[int], mask: int, seed: int) -> None:
    y = np.zeros((32, 12), np.uint32)
    launch("votes", 1, 32, [np.array(values, np.int32), y, np.uint32(mask)], seed=seed)
    lanes = [lane for lane in range(32) if mask >> lane & 1]
    positive = [values[lane] > 0 for lane in lanes]
    ballot = sum(1 << lane for lane in lanes if values[lane] > 0)
    np.testing.assert_array_equal(y[lanes, :3], [[ballot, any(positive), all(positive)]] * len(lanes))


@given(
    st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 1), min_size=32, max_size=32) | st.just([7] * 32),
    st.integers(0, 100),
)
def test_matches_and_reductions(values: list[int], seed: int) -> None:
    x = np.array(values, np.int32)
    y = np.zeros((32, 12), np.uint32)
    launch("reductions", 1, 32, [x, y], seed=seed)
    bits = x.view(np.uint32)
    same = len(set(values)) == 1
    one = [FULL * same, same, sum(values) % 2**32, *x[[x.argmin(), x.argmax()]].view(np.uint32), bits.min(), bits.max()]
    one += [np.bitwise_and.reduce(bits), np.bitwise_or.reduce(bits), np.bitwise_xor.reduce(bits)]
    np.testing.assert_array_equal(y[:, 1:11], np.array([one] * 32, np.uint32))
    np.testing.assert_array_equal(y[:, 0], [sum(1 << j for j in range(32) if values[j] == value) for value in values])
    np.testing.assert_array_equal(
        y[:, 11], [sum(1 << j for j in range(32) if j % 3) if lane % 3 else 0 for lane in range(32)]
    )


@pytest.mark.parametrize("seed", range(3))
def test_atomics(seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 256, 1500, np.uint8)
    counts, total, first = np.zeros(256, np.uint32), np.zeros(1, np.float32), np.full(1, 2**64 - 1, np.uint64)
    launch("histogram", 3, 128, [x, counts, total, first, np.int32(x.size)], seed=seed)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=256))
    assert total[0] == x.sum()
    assert first[0] == np.flatnonzero(x == 255)[0]


@pytest.mark.parametrize("seed", range(5))
def test_last_block(seed: int) -> None:
    x = np.random.default_rng(seed).integers(-1000, 1000, 7 * 32, np.int32)
    total = np.zeros(1, np.int32)
    launch("last_block", 7, 32, [x, np.zeros(7, np.int32), np.zeros(1, np.uint32), total], seed=seed)
    assert total[0] == x.sum()


@pytest.mark.parametrize("seed", range(20))
def test_innocent_kernel_is_not_accused(seed: int) -> None:
    x = np.random.default_rng(seed).integers(-1000, 1000, 32, np.int32)
    y = np.full((4, 64), -1, np.int32)
    launch("innocent", 4, 64, [x, y, np.int32(3)], seed=seed)
    lane = np.arange(64) % 32
    expected = x.sum() + (np.arange(64) - lane) + ((lane ^ 3 ^ 1) + 5) % 32
    np.testing.assert_array_equal(y, np.vstack([np.broadcast_to(expected, (3, 64)), np.full((1, 64), -1)]))


@pytest.mark.parametrize("seed", range(20))
def test_parts_of_a_warp_are_not_accused(seed: int) -> None:
    y = np.empty(32, np.int32)
    launch("parts", 1, 32, [y], seed=seed)
    lane = np.arange(32)
    got = np.where((lane < 8) | (lane >= 30), lane ^ 1, lane)[lane ^ 16] + (lane % 2) * 12
    np.testing.assert_array_equal(y, got.max() * 64 + got)


def test_bytes_between_members_are_not_missed() -> None:
    memory = BACKEND.allocate(2 * 64 * 16)
    function = _function("padded")
    args = BACKEND.arguments(function, [np.uint64(memory.pointer), np.uint64(memory.pointer + 64 * 16)])
    BACKEND.enqueue(function, (1, 1, 1), (64, 1, 1), args, 0, BACKEND.stream)
    found = np.empty((64, 2))
    BACKEND.read(memory.pointer + 64 * 16, found)
    np.testing.assert_array_equal(found[:, 1], np.arange(64))


def _random_bits(n: int, seed: int) -> npt.NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(0, 2**32, n, np.uint32)


def test_dp4a() -> None:
    a, b, c = (_random_bits(1000, seed) for seed in range(3))
    y = np.empty(2000, np.uint32)
    launch("dp4a", 2, 256, [a.view(np.int32), b.view(np.int32), c.view(np.int32), y.view(np.int32), np.int32(1000)])
    signed = (a.view(np.int8).astype(np.int64) * b.view(np.int8)).reshape(-1, 4).sum(1) + c
    unsigned = (a.view(np.uint8).astype(np.int64) * b.view(np.uint8)).reshape(-1, 4).sum(1) + c
    np.testing.assert_array_equal(y, np.concatenate([signed, unsigned]).astype(np.uint32))


def test_bits() -> None:
    a, b, c = (_random_bits(1000, seed) for seed in range(3))
    a[:3] = 0, 1, 1 << 31
    y = np.empty((1000, 8), np.uint32)
    launch("bits", 2, 256, [a, b, c, y, np.int32(1000)])
    for x, other, selector, found in zip(a.tolist(), b.tolist(), c.tolist(), y.tolist(), strict=True):
        both = (other << 32 | x).to_bytes(8, "little")
        chosen = [selector >> 4 * i & 15 for i in range(4)]
        permuted = bytes((both[k & 7] >> 7) * 255 if k & 8 else both[k] for k in chosen)
        by = selector % 32
        assert found == [
            int.from_bytes(permuted, "little"),
            x.bit_count(),
            32 - x.bit_length(),
            (x & -x).bit_length(),
            int(f"{x:032b}"[::-1], 2),
            ((other << 32 | x) << by >> 32) % 2**32,
            ((other << 32 | x) >> by) % 2**32,
            x * other >> 32,
        ]


def test_floats_to_integers() -> None:
    x = np.concatenate(
        [
            _random_bits(3000, 1).view(np.float32),
            np.arange(-8, 8, 0.25, dtype=np.float32),
            np.array([np.nan, np.inf, -np.inf, 2**31, -(2.0**31)], np.float32),
        ]
    )
    nearest, down, unsigned = np.empty(x.size, np.int32), np.empty(x.size, np.int32), np.empty(x.size, np.uint32)
    launch("to_integer", 2, 256, [x, nearest, down, unsigned, np.int32(x.size)])
    exact = np.array([0.0 if np.isnan(value) else float(value) for value in x])
    np.testing.assert_array_equal(nearest, np.clip(np.rint(exact), -(2**31), 2**31 - 1))
    np.testing.assert_array_equal(down, np.clip(np.floor(exact), -(2**31), 2**31 - 1))
    np.testing.assert_array_equal(unsigned, np.clip(np.rint(exact), 0, 2**32 - 1))


def test_every_half_and_bfloat16_widens() -> None:
    halves, bfloats = np.empty(BITS.size, np.float32), np.empty(BITS.size, np.float32)
    launch("widen", 8, 256, [BITS, halves, bfloats, np.int32(BITS.size)])
    np.testing.assert_array_equal(halves, BITS.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(bfloats, BITS.view(ml_dtypes.bfloat16).astype(np.float32))
    number = ~np.isnan(halves)
    np.testing.assert_array_equal(
        halves[number].view(np.uint32), BITS.view(np.float16)[number].astype(np.float32).view(np.uint32)
    )


def _narrowed(x: npt.NDArray[Any], found: npt.NDArray[np.uint16], dtype: Any) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(dtype).view(np.uint16)
    np.testing.assert_array_equal(found, np.where(np.isnan(x), 0x7FFF, expected))


def test_floats_narrow_to_nearest_even() -> None:
    # Every 16-bit number, the midpoint to the next one, and the floats on both sides of it.
    with np.errstate(all="ignore"):
        edges = [bits.astype(np.float32) for bits in (BITS.view(np.float16), BITS.view(ml_dtypes.bfloat16))]
        halfway = [((each.astype(np.float64) + np.roll(each, -1)) / 2).astype(np.float32) for each in edges]
        x = np.concatenate(
            [*edges, *halfway, *(np.nextafter(each, np.float32(to)) for each in halfway for to in (-np.inf, np.inf))]
        )
    halves, bfloats = np.empty(x.size, np.uint16), np.empty(x.size, np.uint16)
    launch("narrow", 8, 256, [x, halves, bfloats, np.int32(x.size)])
    _narrowed(x, halves, np.float16)
    _narrowed(x, bfloats, ml_dtypes.bfloat16)


def test_doubles_are_rounded_once() -> None:
    finite = np.arange(0, 0x7BFF, dtype=np.uint16).view(np.float16).astype(np.float64)
    halfway = (finite[:-1] + finite[1:]) / 2
    x = np.concatenate(
        [halfway, np.nextafter(halfway, np.inf), np.nextafter(halfway, -np.inf), -np.nextafter(halfway, np.inf)]
    )
    halves, bfloats = np.empty(x.size, np.uint16), np.empty(x.size, np.uint16)
    launch("narrow_double", 8, 256, [x, halves, bfloats, np.int32(x.size)])
    _narrowed(x, halves, np.float16)


@pytest.mark.parametrize(("name", "dtype"), [("half", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_arithmetic_of_16_bits(name: str, dtype: Any) -> None:
    a, b, c = (np.random.default_rng(seed).integers(0, 1 << 16, 4000, np.uint16) for seed in range(3))
    y = np.empty((5, a.size), np.uint16)
    launch(name, 4, 256, [a, b, c, y, np.int32(a.size)])
    x, z, plus = (each.view(dtype).astype(np.float32) for each in (a, b, c))
    found = y.view(dtype)
    with np.errstate(all="ignore"):
        for got, expected in zip(found, (x + z, x - z, x * z, x / z), strict=False):
            np.testing.assert_array_equal(got.astype(np.float32), expected.astype(dtype).astype(np.float32))
    # a * b + c, rounded once: compared with the exact value, which is not closer to either neighbour.
    fine = np.isfinite(x) & np.isfinite(z) & np.isfinite(plus) & np.isfinite(found[4].astype(np.float32))
    assert fine.sum() > 1000
    for i in np.flatnonzero(fine):
        exact = Fraction(float(x[i])) * Fraction(float(z[i])) + Fraction(float(plus[i]))
        for neighbour in {max(0, int(y[4, i]) - 1), min(0xFFFF, int(y[4, i]) + 1)}:
            near = float(np.uint16(neighbour).view(dtype))
            if np.isfinite(near):
                assert abs(Fraction(near) - exact) >= abs(Fraction(float(found[4, i])) - exact)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "dtype", "sum_dtype"),
    [
        ("half", np.float16, np.float32),
        ("half_sum", np.float16, np.float16),
        ("bfloat16", ml_dtypes.bfloat16, np.float32),
        ("int8", np.int8, np.int32),
    ],
)
def test_wmma(name: str, dtype: Any, sum_dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, c = (
        rng.integers(-100, 100, (16, 16)).astype(kind)
        if dtype == np.int8
        else rng.standard_normal((16, 16)).astype(kind)
        for kind in (dtype, dtype, sum_dtype)
    )
    d = np.empty((16, 16), sum_dtype)
    launch(f"wmma_{name}", 1, 32, [a, b, c, d], seed=seed)
    left, right, plus = (each.astype(np.float64) for each in (a, b, c))
    exact = 2 * (left @ right.T) + plus
    if dtype == np.int8:
        np.testing.assert_array_equal(d, exact)
        return
    # 16 products, and the roundings of product, doubling, sum and result, each of relative size u of the sum's type.
    u = np.finfo(sum_dtype).eps / 2
    bound = 20 * u / (1 - 20 * u) * (2 * (np.abs(left) @ np.abs(right.T)) + np.abs(plus))
    assert (np.abs(d - exact) <= bound).all()


def test_a_copy_while_another_thread_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before, held = [BACKEND.allocate(64) for _ in range(8)], BACKEND.allocate(256)

    def give_back() -> None:
        for each in before:
            each.free()

    other = Thread(target=give_back)

    def interrupted(*arguments: Any) -> int:
        found = bisect_right(*arguments)
        if not other.ident:
            monkeypatch.undo()
            other.start()
            other.join(0.2)  # it waits for the copy's check of allocations
        return found

    monkeypatch.setattr(memory, "bisect_right", interrupted)
    values, found = np.arange(256, dtype=np.uint8), np.empty(256, np.uint8)
    BACKEND.write(held.pointer, values)
    other.join()
    BACKEND.read(held.pointer, found)
    np.testing.assert_array_equal(found, values)
