"""ternary_matmul straight from the bytes of i2_s_x86: the same accumulators and bits as from any other format."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import NoCompatibleKernelError
from tritmark.kernels import QuantizedLinear, pack_weights
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.api import with_receipt

SHAPES = st.tuples(
    st.integers(1, 9) | st.integers(60, 70), st.integers(1, 70), st.integers(1, 12).map(lambda blocks: 128 * blocks)
)


@given(
    SHAPES,
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 37]),
    st.integers(1, 5),
    st.sampled_from(["int32", "float32", "bfloat16"]),
)
def test_the_bits_are_those_of_the_repacked_product(isa, shape, seed, gap, threads, dtype):
    M, N, K = shape
    rng = np.random.default_rng(seed)
    activations = rng.integers(-128, 128, (M, K + gap), dtype=np.int8)[:, :K]
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    scale, act_scale = np.float32(rng.uniform(1e-3, 10)), rng.uniform(1e-2, 1e3, M).astype(np.float32)
    weights = pack_weights(codes, scale, format="i2_s_x86")
    out, receipt = with_receipt(activations, weights, act_scale=act_scale, dtype=dtype, variant=isa, threads=threads)
    assert (receipt.kernel, receipt.ran, receipt.note) == (f"cpu/ternary_matmul/i2_s_x86/{dtype}/{isa}", isa, "")
    expected, _ = with_receipt(
        activations, pack_weights(codes, scale), act_scale=act_scale, dtype=dtype, variant="scalar"
    )
    assert np.array_equal(out, expected)
    if dtype == "int32":
        assert np.array_equal(out, activations.astype(np.int64) @ codes.T.astype(np.int64))


@pytest.mark.parametrize(("code", "activation"), [(1, -128), (-1, -128), (1, 127), (-1, 127)])
@pytest.mark.parametrize("K", [128 * 15, 128 * 16, 128 * 17, 65536, (1 << 23) - 128])
@pytest.mark.parametrize("M", [1, 3])
def test_sums_of_the_largest_products_are_exact(isa, M, K, code, activation):
    """Past int16 within a block's sums, and up to the longest row that int32 holds."""
    N = 5 if K < 1 << 20 else 1
    weights = pack_weights(np.full((N, K), code, np.int8), 1.0, format="i2_s_x86")
    acc, _ = with_receipt(np.full((M, K), activation, np.int8), weights, dtype="int32", variant=isa, threads=1)
    assert np.array_equal(acc, np.full((M, N), code * activation * K))


def test_rows_that_begin_within_a_block_are_repacked():
    codes = np.random.default_rng(0).integers(-1, 2, (64, 130), dtype=np.int8)
    activations = np.ones((2, 130), np.int8)
    weights = pack_weights(codes, 0.5, format="i2_s_x86")
    out, receipt = with_receipt(activations, weights)
    assert receipt.note == "computed from tile64, repacked from i2_s_x86"
    assert np.array_equal(out, 0.5 * codes.sum(axis=1, dtype=np.float32)[np.newaxis].repeat(2, axis=0))


def test_a_layer_computes_from_the_bytes_that_it_was_given(monkeypatch):
    monkeypatch.delenv(cpu.FORCE, raising=False)
    layer = QuantizedLinear(pack_weights(np.ones((8, 256), np.int8), 0.5, format="i2_s_x86"))
    layer(np.ones(256, np.float32))
    assert layer.receipt.kernel.startswith("cpu/ternary_matmul/i2_s_x86/float32/")  # type: ignore[union-attr]
    assert layer.receipt.note == ""  # type: ignore[union-attr]


def test_a_set_that_it_has_no_kernel_for_is_looked_for_in_other_formats():
    weights = pack_weights(np.ones((8, 256), np.int8), 0.5, format="i2_s_x86")
    lacking = {*cpu.KERNELS["ternary_matmul"]} - {*cpu.KERNELS["ternary_matmul_i2_s_x86"]}
    for isa in (each for each in lacking if each.features <= cpu.features()):
        _, receipt = with_receipt(np.ones((1, 256), np.int8), weights, variant=isa.name)
        assert receipt.kernel == f"cpu/ternary_matmul/tile64/float32/{isa.name}"
    with pytest.raises(NoCompatibleKernelError):
        with_receipt(np.ones((1, 256), np.int8), weights, variant="neon")
