"""Calls that reuse an earlier call's binding: the same results and errors, without new objects on the device."""

from __future__ import annotations

import copy
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels import QuantizedLinear, i2s_quantize, pack_codes, ternary_quantize
from tritmark.kernels.cuda.context import CudaContext, cuda_context, simulated
from tritmark.kernels.cuda.kernel import NONE_BAD
from tritmark.kernels.cuda.memory.lanes import Lanes
from tritmark.kernels.dispatch.offload import KEPT_BYTES, kept

WAYS = ("pieces", "at once")
"""Separate copies and launches, and round trips without Python. A GPU uses round trips; the simulator gets a stand-in
for them."""
RNG = np.random.default_rng(5)
K = 128
"""Columns of the layers."""
rotations = pytest.mark.parametrize(
    "hadamard", [None, (64, RNG.choice(np.array([-1, 1], np.int8), K))], ids=["plain", "rotated"]
)


@pytest.fixture(params=WAYS)
def trips(request: pytest.FixtureRequest, cuda: CudaContext, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One of the two ways, and the number of round trips per 1."""
    made: list[int] = []
    own = Lanes.round_trip

    def trip(self: Lanes, inputs: Any, launches: Any, bad: int, outputs: Any) -> int | None:
        made.append(1)
        here = cuda_context()
        if not simulated():
            return own(self, inputs, launches, bad, outputs)
        functions = {each.handle: each for each in here._functions.values()}
        for values, pointer in inputs:
            here.backend.write(pointer, values)
        here.backend.fill(bad, 0xFF, NONE_BAD.nbytes)
        for handle, grid, block, shared, arguments in launches:
            here.backend.enqueue(functions[handle], grid, block, arguments, shared, here.backend.stream)
        found = np.empty(1, np.uint64)
        here.backend.read(bad, found)
        for into, pointer in outputs if found[0] == NONE_BAD else ():
            here.backend.read(pointer, into)
        return int(found[0])

    monkeypatch.setattr(Lanes, "round_trip", trip if request.param == "at once" else lambda *_: None)
    return made


def floats(n: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(n, np.float32)


def trips_of(request: pytest.FixtureRequest, calls: int) -> int:
    """Number of round trips in so many calls."""
    return calls if request.node.callspec.params["trips"] == "at once" else 0


def test_the_second_call_allocates_nothing(trips: list[int], request: pytest.FixtureRequest) -> None:
    pool = cuda_context().pool
    arrays = [floats(5000) for _ in range(4)]
    expected = [ternary_quantize(each, packed=True, device="cuda") for each in arrays]
    gc.collect()  # arrays of earlier tests in cycles
    before = pool.leaks().nbytes
    with kept():
        first = ternary_quantize(arrays[0], packed=True, device="cuda")
        made = pool.figures().allocations
        found = [first, *(ternary_quantize(each, packed=True, device="cuda") for each in arrays[1:])]
        assert pool.figures().allocations == made
        assert pool.leaks().nbytes > before
    assert pool.leaks().nbytes == before
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine.packed, theirs.packed)
        np.testing.assert_array_equal(mine.scales, theirs.scales)
    assert len(trips) == trips_of(request, 4)


def test_what_is_bound_for_a_round_trip_is_not_copied_to(trips: list[int], request: pytest.FixtureRequest) -> None:
    """A copy through a library waits for its other copies. A copy that runs alone does not."""
    stats = cuda_context().stats
    with kept():
        before = stats.uploads
        ternary_quantize(floats(5000), device="cuda")
        alone = request.node.callspec.params["trips"] == "pieces"
        assert stats.uploads - before == (2 if alone else 0 if simulated() else 1)  # together with the array


def test_pinned_arrays_are_taken_as_others(trips: list[int], request: pytest.FixtureRequest) -> None:
    pinned = cuda_context().backend.pinned(4 * 300_000).view(np.float32)
    with kept():
        for _ in range(3):
            pinned[:] = floats(pinned.size)
            codes, scales = ternary_quantize(pinned, block=64, device="cuda")
            expected = ternary_quantize(pinned.copy(), block=64)
            np.testing.assert_array_equal(codes, expected.codes)
            np.testing.assert_array_equal(scales, expected.scales)
    assert len(trips) == trips_of(request, 3)


def test_sizes_far_from_each_other_are_kept_beside_each_other(trips: list[int]) -> None:
    pool = cuda_context().pool
    sizes = 50_000, 20_000, 5_000
    with kept():
        for turn in range(3):
            made = pool.figures().allocations
            for n in sizes:
                x = floats(n)
                for mine, theirs in zip(ternary_quantize(x, device="cuda"), ternary_quantize(x), strict=True):
                    np.testing.assert_array_equal(mine, theirs)
            assert (pool.figures().allocations == made) == (turn > 0)


def test_no_more_is_kept_than_twice_the_largest_needs(trips: list[int]) -> None:
    pool = cuda_context().pool
    before = pool.leaks().nbytes
    with kept():
        ternary_quantize(floats(100_000), device="cuda")
        largest = pool.leaks().nbytes - before
        for n in range(100_000, 50_000, -9_999):
            ternary_quantize(floats(n), device="cuda")
            assert largest <= pool.leaks().nbytes - before <= KEPT_BYTES * largest
    assert pool.leaks().nbytes == before


def test_another_shape_option_or_scalar_is_bound_anew(trips: list[int], request: pytest.FixtureRequest) -> None:
    pool = cuda_context().pool
    x = floats(1024)
    with kept():
        for call in (
            lambda device: ternary_quantize(x, block=64, device=device),
            lambda device: ternary_quantize(x, block=32, device=device),
            lambda device: ternary_quantize(x[:512], block=32, device=device),
            lambda device: ternary_quantize(x.astype(np.float16)[:512], block=32, device=device),
            lambda device: (i2s_quantize(x, 0.5, device=device),),
            lambda device: (i2s_quantize(x, 0.25, device=device),),
            lambda device: ternary_quantize(x, block=64, device=device),
        ):
            made = pool.figures().allocations
            for mine, theirs in zip(call("cuda"), call("cpu"), strict=True):
                np.testing.assert_array_equal(mine, theirs)
            assert pool.figures().allocations > made
    assert len(trips) == trips_of(request, 7)


def test_an_element_that_is_refused_is_told_and_forgotten(trips: list[int]) -> None:
    x, wrong = floats(3000), floats(3000)
    wrong[2345] = np.nan
    expected = ternary_quantize(x, device="cuda")
    out = ternary_quantize(floats(3000), device="cuda")
    before = [each.copy() for each in out]
    with kept():
        ternary_quantize(x, device="cuda")
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="nan at index 2345"):
                ternary_quantize(wrong, device="cuda")
            with pytest.raises(InvalidArgumentError, match="nan at index 2345"):
                ternary_quantize(wrong, device="cuda", out=out)
            for mine, theirs in zip(ternary_quantize(x, device="cuda"), expected, strict=True):
                np.testing.assert_array_equal(mine, theirs)
    for mine, theirs in zip(out, before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_codes_of_every_size_follow_each_other(trips: list[int]) -> None:
    each = [RNG.integers(-1, 2, (N, 130), dtype=np.int8) for N in (3, 3, 8, 8, 3)]
    expected = [pack_codes(codes, 0.5, device="cuda") for codes in each]
    with kept():
        found = [pack_codes(codes, 0.5, device="cuda") for codes in each]
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine.data, theirs.data)


@rotations
def test_a_layer_binds_once_for_a_number_of_rows(
    trips: list[int], request: pytest.FixtureRequest, hadamard: Any
) -> None:
    W = RNG.standard_normal((48, K), np.float32)
    bias = floats(48)
    here, there = (
        QuantizedLinear(W, bias, hadamard=hadamard),
        QuantizedLinear(W, bias, hadamard=hadamard, device="cuda"),
    )
    pool = cuda_context().pool
    before = pool.leaks().nbytes
    there(floats(K * 2).reshape(2, K))
    made = pool.figures().allocations
    for _ in range(3):
        x = RNG.standard_normal((2, K), np.float32)
        assert np.array_equal(there(x), here(x))
    assert pool.figures().allocations == made
    assert len(trips) == trips_of(request, 3)
    receipt = there.receipt
    assert receipt is not None
    assert receipt.launches >= 8
    assert simulated() or receipt.device_ns > 0
    for rows in (1, 3, 2):
        x = RNG.standard_normal((rows, K), np.float32).astype(np.float16)
        assert np.array_equal(there(x), here(x))
    del there
    assert pool.leaks().nbytes <= before


@rotations
@pytest.mark.usefixtures("trips")
def test_a_layer_refuses_what_is_not_finite_and_goes_on(hadamard: Any) -> None:
    W = RNG.standard_normal((48, K), np.float32)
    here, there = (QuantizedLinear(W, hadamard=hadamard, device=device) for device in ("cpu", "cuda"))
    x = RNG.standard_normal((2, K), np.float32)
    bad = x.copy()
    bad[1, 7] = np.nan
    for _ in range(2):
        assert np.array_equal(there(x), here(x))
        found = r"nan at index \(1, 7\)" if hadamard is None else f"nan at index {K + 7}"
        with pytest.raises(InvalidArgumentError, match=found):
            there(bad)
    assert np.array_equal(there(x), here(x))


@rotations
@pytest.mark.usefixtures("trips")
def test_a_layer_with_other_weights_binds_anew(hadamard: Any) -> None:
    one, two = (
        QuantizedLinear(RNG.standard_normal((48, K), np.float32), hadamard=hadamard, device="cuda") for _ in range(2)
    )
    x = RNG.standard_normal((1, K), np.float32)
    one(x)
    expected = two(x)
    one.weights = two.weights
    assert np.array_equal(one(x), expected)
    twin = copy.deepcopy(one)
    assert np.array_equal(twin(x), expected)


@rotations
@pytest.mark.usefixtures("trips")
def test_threads_share_a_layer(hadamard: Any) -> None:
    W = RNG.standard_normal((48, K), np.float32)
    here, there = (QuantizedLinear(W, hadamard=hadamard, device=device) for device in ("cpu", "cuda"))
    rows = [RNG.standard_normal((1, K), np.float32) for _ in range(12)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(there, rows))
    assert all(np.array_equal(each, here(x)) for each, x in zip(found, rows, strict=True))
