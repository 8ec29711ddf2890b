"""ternary_matmul of tile64 where its loops are cut: slabs of up to 96 rows of activations, blocks of up to six, tiles
of 64 rows of weights, stretches of K that a part of L1 holds, and a tail of K."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tritmark.kernels import pack_weights, ternary_matmul
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.api import with_receipt

Ints = npt.NDArray[np.int64]
Product = Callable[[npt.NDArray[np.int8], npt.NDArray[np.int8]], Ints]

# Around multiples of the blocks' and slabs' rows; odd sizes.
ROWS = st.integers(1, 30) | st.sampled_from([47, 48, 95, 96, 97, 191, 192, 193, 289, 512, 599, 600])
# Around the groups that a 32 or 48 KiB L1, or NEAR of avx2.c, is cut at, with and without a tail.
COLUMNS = st.integers(1, 40) | st.sampled_from(
    [255, 256, 257, 511, 512, 513, 679, 680, 681, 684, 1023, 1024, 1025, 1027, 1535, 2049]
)


every_variant = pytest.mark.parametrize(
    "variant", [isa.name for isa in cpu.KERNELS["ternary_matmul"] if isa.features <= cpu.features()]
)


def exact(activations: npt.NDArray[np.int8], codes: npt.NDArray[np.int8]) -> Ints:
    """Sums below 2^53 are exact in float64, in any order."""
    return np.rint(activations.astype(np.float64) @ codes.astype(np.float64).T).astype(np.int64)


def drawn(M: int, N: int, K: int, seed: int, gap: int = 0) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
    """Activations whose rows lie `gap` further apart, of all values, and codes."""
    rng = np.random.default_rng(seed)
    activations = rng.integers(-128, 128, (M, K + gap), dtype=np.int8)[:, :K]
    return activations, rng.integers(-1, 2, (N, K), dtype=np.int8)


def is_right(product: Product, M: int, N: int, K: int, seed: int, gap: int = 0) -> bool:
    """Whether the product of drawn numbers is exact."""
    activations, codes = drawn(M, N, K, seed, gap)
    return np.array_equal(product(activations, codes), exact(activations, codes))


@every_variant
@given(
    M=ROWS,
    N=st.integers(1, 200),
    K=COLUMNS,
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    threads=st.integers(1, 7),
)
@example(M=600, N=129, K=1195, seed=1, gap=3, threads=3)
@example(M=97, N=1, K=1027, seed=2, gap=0, threads=1)
def test_sums_are_exact_wherever_the_loops_are_cut(
    variant: str, M: int, N: int, K: int, seed: int, gap: int, threads: int
) -> None:
    def product(activations: npt.NDArray[np.int8], codes: npt.NDArray[np.int8]) -> Ints:
        acc, receipt = with_receipt(
            activations, pack_weights(codes, 1.0), dtype="int32", variant=variant, threads=threads
        )
        assert receipt.ran == variant
        return acc

    assert is_right(product, M, N, K, seed, gap)


@given(M=ROWS, N=st.integers(1, 140), seed=st.integers(0, 2**32), threads=st.integers(1, 5))
@settings(max_examples=20)
def test_float_outputs_are_the_same_bits_whatever_computes_them(M: int, N: int, seed: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    activations, codes = drawn(M, N, 517, seed)
    weights, act_scale = pack_weights(codes, rng.uniform(1e-3, 10)), rng.uniform(1e-2, 1e3, M).astype(np.float32)
    factor = np.float64(weights.weight_scale) / act_scale.astype(np.float64)
    expected = (exact(activations, codes) * factor[:, np.newaxis]).astype(np.float32)
    for isa in cpu.KERNELS["ternary_matmul"]:
        if isa.features <= cpu.features():
            told: dict[str, Any] = {"act_scale": act_scale, "variant": isa.name, "threads": threads}
            assert np.array_equal(
                ternary_matmul(activations, weights, **told).view(np.uint32), expected.view(np.uint32)
            )
            half = ternary_matmul(activations, weights, dtype="bfloat16", **told)
            assert np.array_equal(half.view(np.uint16), expected.astype(ml_dtypes.bfloat16).view(np.uint16))


@every_variant
@pytest.mark.parametrize("K", [16384, 65535, 65536])
@pytest.mark.parametrize("M", [6, 25])
@pytest.mark.parametrize("activation", [127, -128])
def test_the_largest_sums_are_exact(variant: str, M: int, K: int, activation: int) -> None:
    """All weights 1, all -1, or alternating, in each position of a byte and at both ends of a tile."""
    codes = np.ones((67, K), np.int8)
    codes[[1, 17, 33, 63, 64]] = -1
    codes[[2, 66], ::2] = -1
    activations = np.full((M, K), activation, np.int8)
    activations[-1, 1::2] = -1 - activation
    acc = ternary_matmul(activations, pack_weights(codes, 1.0), dtype="int32", variant=variant)
    assert np.array_equal(acc, exact(activations, codes))


@every_variant
def test_sums_of_more_columns_than_a_chunk_are_exact_in_each_field(variant: str) -> None:
    """In one chunk the differences of avx512.c's sums would pass 2^31."""
    codes, activations = np.ones((64, 1 << 18), np.int8), np.full((2, 1 << 18), -128, np.int8)
    activations[1] = 127
    acc = ternary_matmul(activations, pack_weights(codes, 1.0), dtype="int32", variant=variant)
    assert np.array_equal(acc, np.repeat([[-128 << 18], [127 << 18]], 64, axis=1))


@every_variant
def test_all_threads_take_part_in_few_tiles_of_many_rows(variant: str) -> None:
    """One tile, which is one item of work unless the rows of activations are cut too. Where others have the cores, a
    call may be done before its second thread begins, but not every call."""
    activations, codes = drawn(512, 64, 2048, 5)
    weights, took_part = pack_weights(codes, 1.0), set()
    for _ in range(200):
        acc, receipt = with_receipt(activations, weights, dtype="int32", variant=variant, threads=2)
        assert np.array_equal(acc, exact(activations, codes))
        took_part.add(receipt.threads)
        if 2 in took_part:
            break
    assert 2 in took_part


def _corrected_by_the_first_slab(activations: npt.NDArray[np.int8], codes: npt.NDArray[np.int8]) -> Ints:
    sums = activations.sum(axis=1, dtype=np.int64)
    acc = exact(activations, codes)
    acc[96:] += (sums[96:] - sums[np.arange(96, len(sums)) % 96])[:, np.newaxis]
    return acc


def _last_of_a_block_is_the_one_before(activations: npt.NDArray[np.int8], codes: npt.NDArray[np.int8]) -> Ints:
    acc = exact(activations, codes)
    acc[5::6] = acc[4::6][: len(acc[5::6])]
    return acc


def _stretch_lost(activations: npt.NDArray[np.int8], codes: npt.NDArray[np.int8]) -> Ints:
    acc = exact(activations, codes)
    acc[6:] -= exact(activations[6:, 1020:1024], codes[:, 1020:1024])
    return acc


def _tail_twice(activations: npt.NDArray[np.int8], codes: npt.NDArray[np.int8]) -> Ints:
    tail = activations.shape[1] // 4 * 4
    return exact(activations, codes) + exact(activations[:, tail:], codes[:, tail:])


def _last_tile_not_written(activations: npt.NDArray[np.int8], codes: npt.NDArray[np.int8]) -> Ints:
    acc = exact(activations, codes)
    acc[:, len(codes) // 64 * 64 :] = 0
    return acc


def _int16_of_a_pair(activations: npt.NDArray[np.int8], codes: npt.NDArray[np.int8]) -> Ints:
    """Sums of 65 maddubs in int16, one more than fit."""
    acc = -np.broadcast_to(activations.sum(axis=1, dtype=np.int64)[:, np.newaxis], (len(activations), len(codes)))
    fields = codes + 1
    for start in range(0, activations.shape[1], 4 * 65):
        for pair in (0, 2):
            at = [k + i for k in range(start, min(start + 260, activations.shape[1]), 4) for i in (pair, pair + 1)]
            at = [k for k in at if k < activations.shape[1]]
            acc = acc + exact(activations[:, at], fields[:, at]).astype(np.int16)
    return acc


@pytest.mark.parametrize(
    "fault",
    [
        _corrected_by_the_first_slab,
        _last_of_a_block_is_the_one_before,
        _stretch_lost,
        _tail_twice,
        _last_tile_not_written,
    ],
)
def test_planted_faults_are_found(fault: Product) -> None:
    """By the test of drawn sizes: its first example has every cut."""
    assert is_right(exact, 600, 129, 1195, 1, 3)
    assert not is_right(fault, 600, 129, 1195, 1, 3)


def test_an_int16_sum_of_one_pair_too_many_is_found() -> None:
    """By the test of the largest sums."""
    activations, codes = np.full((2, 16384), -128, np.int8), np.ones((3, 16384), np.int8)
    assert not np.array_equal(_int16_of_a_pair(activations, codes), exact(activations, codes))
    assert np.array_equal(_int16_of_a_pair(activations // 2, codes), exact(activations // 2, codes))
