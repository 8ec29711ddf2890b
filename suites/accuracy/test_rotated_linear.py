"""QuantizedLinear with `hadamard`: the bits of hadamard_quantize and ternary_matmul, on every path of a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.weights.hadamard import transformed
from tritmark.kernels import QuantizedLinear, bind_linears, hadamard_quantize, pack_weights, ternary_matmul
from tritmark.kernels.hadamard_quantize.reference import factor
from tritmark.kernels.hadamard_quantize.spec import BLOCKS
from tritmark.kernels.numerics.input_dtypes import FORMATS, narrow

SCALED = {"tile64": 0, "hf_pack": 0, "tile64_g128": 128, "q2_0": 64}
"""Weight formats with the size of a group, 0 for one scale. hf_pack and q2_0 are repacked."""


def packed(rng: np.random.Generator, N: int, K: int, format: str) -> Any:
    group = SCALED[format]
    scales: Any = 0.5
    if group:
        scales = rng.uniform(0.1, 1, (N, K // group)).astype(np.float16).astype(np.float32)
    return pack_weights(rng.integers(-1, 2, (N, K), dtype=np.int8), scales, format=format)


def bits(array: Any) -> Any:
    return array.shape, array.dtype, array.tobytes()


@given(
    leading=st.sampled_from([(), (1,), (4,), (2, 3)]),
    N=st.integers(1, 70),
    count=st.integers(1, 3),
    block=st.sampled_from(BLOCKS),
    format=st.sampled_from(list(SCALED)),
    dtype=st.sampled_from(FORMATS),
    signed=st.booleans(),
    biased=st.booleans(),
    threads=st.sampled_from([None, 1, 2]),
    seed=st.integers(0, 2**32),
)
def test_a_layer_has_the_bits_of_the_two_calls(
    leading: tuple[int, ...],
    N: int,
    count: int,
    block: int,
    format: str,
    dtype: str,
    signed: bool,
    biased: bool,
    threads: int | None,
    seed: int,
) -> None:
    """In the first call, with a plan, bound, and bound together with another layer."""
    K = 2 * count * block  # whole groups of every format
    rng = np.random.default_rng(seed)
    weights, signs = packed(rng, N, K, format), rng.choice(np.array([-1, 1], np.int8), K) if signed else None
    bias = rng.standard_normal(N, dtype=np.float32) if biased else None
    x = narrow(rng.standard_normal((*leading, K), dtype=np.float32), dtype)
    rows = hadamard_quantize(x.reshape(-1, K), signs, block_size=block, threads=threads)
    expected = ternary_matmul(rows.q, weights, act_scale=rows.scale, threads=threads)
    expected = (expected if bias is None else expected + bias).reshape(*leading, N)
    layer = QuantizedLinear(weights, bias, hadamard=(block, signs), threads=threads)
    for _ in range(3):
        assert bits(layer(x)) == bits(expected)
    wide = x.astype(np.float32)
    assert bits(layer.bind(wide).run()) == bits(expected)
    of_both = bind_linears([(layer, wide), (QuantizedLinear(weights, hadamard=layer.hadamard, threads=threads), wide)])
    for _ in range(2):
        first, second = of_both.run()
        assert bits(first) == bits(expected)
        assert bias is not None or bits(second) == bits(expected)


@given(count=st.integers(1, 3), block=st.sampled_from(BLOCKS), signed=st.booleans(), seed=st.integers(0, 2**32))
def test_a_layer_is_the_product_in_float64(count: int, block: int, signed: bool, seed: int) -> None:
    """Of rows whose sums are exact, multiples of 1/16."""
    K, N = count * block, 9
    rng = np.random.default_rng(seed)
    x = (rng.integers(-64, 65, (3, K)) / 16).astype(np.float32)
    signs = rng.choice(np.array([-1, 1], np.int8), K) if signed else None
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    sums = np.rint(transformed(x, block, signs) * np.sqrt(block) * 16) / 16
    y = (sums * np.float64(factor(block))).astype(np.float32)
    scale = np.float32(127) / np.maximum(np.abs(y).max(axis=-1), np.float32(1e-5))
    q = np.rint(y * scale[:, np.newaxis]).astype(np.int64)
    per_code = np.float64(0.375) / scale.astype(np.float64)
    expected = ((q @ codes.T.astype(np.int64)) * per_code[:, np.newaxis]).astype(np.float32)
    layer = QuantizedLinear(pack_weights(codes, 0.375), hadamard=(block, signs))
    assert np.array_equal(layer(x), expected)


@pytest.mark.parametrize("format", FORMATS)
def test_without_a_native_kernel_the_rotated_floats_are_multiplied(format: str) -> None:
    rng = np.random.default_rng(3)
    scales = rng.uniform(0.5, 2, (5, 8)).astype(np.float32)
    weights = pack_weights(rng.integers(-1, 2, (5, 1024), dtype=np.int8), scales, format="ort_q2")
    layer = QuantizedLinear(weights, hadamard=(512, None))
    assert not layer.native
    x = narrow(rng.standard_normal((2, 1024), dtype=np.float32), format)
    y = hadamard_quantize(x, block_size=512, dtype="float32")
    assert np.array_equal(layer(x), y @ weights.dequantize().T)
    assert layer.receipt is not None
    assert layer.receipt.note.endswith("; activations rotated in blocks of 512")
