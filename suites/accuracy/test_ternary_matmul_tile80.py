"""ternary_matmul straight from the bytes of tile80: the same accumulators and bits as from tile64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.kernels import QuantizedLinear, pack_weights
from tritmark.kernels.ternary_matmul.api import with_receipt

SHAPES = st.tuples(
    st.integers(1, 30) | st.integers(95, 105), st.integers(1, 90) | st.integers(155, 420), st.integers(1, 1100)
)


@given(
    SHAPES,
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 37]),
    st.integers(1, 5),
    st.sampled_from(["int32", "float32", "bfloat16"]),
)
def test_the_bits_are_those_of_tile64(
    isa: str, shape: tuple[int, int, int], seed: int, gap: int, threads: int, dtype: str
) -> None:
    M, N, K = shape
    rng = np.random.default_rng(seed)
    activations = rng.integers(-128, 128, (M, K + gap), dtype=np.int8)[:, :K]
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    scale, act_scale = np.float32(rng.uniform(1e-3, 10)), rng.uniform(1e-2, 1e3, M).astype(np.float32)
    weights = pack_weights(codes, scale, format="tile80")
    out, receipt = with_receipt(activations, weights, act_scale=act_scale, dtype=dtype, variant=isa, threads=threads)
    assert (receipt.kernel, receipt.ran, receipt.note) == (f"cpu/ternary_matmul/tile80/{dtype}/{isa}", isa, "")
    expected, _ = with_receipt(
        activations, pack_weights(codes, scale), act_scale=act_scale, dtype=dtype, variant="scalar"
    )
    assert np.array_equal(out, expected)
    if dtype == "int32":
        assert np.array_equal(out, activations.astype(np.int64) @ codes.T.astype(np.int64))


@pytest.mark.parametrize(("code", "activation"), [(1, -128), (-1, -128), (1, 127), (-1, 127)])
@pytest.mark.parametrize(
    ("M", "N", "K"),
    [
        *((M, 83, K) for M in (1, 3, 9) for K in (4 * 63, 4 * 64, 4 * 65, 4 * 4096, 4 * 4096 + 1, 65536)),
        pytest.param(1, 1, (1 << 23) - 1, marks=pytest.mark.long),
    ],
)
def test_sums_of_the_largest_products_are_exact(isa: str, M: int, N: int, K: int, code: int, activation: int) -> None:
    """Above int16 within the sums of digits, above int32 in six sums, and up to the longest row."""
    weights = pack_weights(np.full((N, K), code, np.int8), 1.0, format="tile80")
    acc, _ = with_receipt(np.full((M, K), activation, np.int8), weights, dtype="int32", variant=isa, threads=1)
    assert np.array_equal(acc, np.full((M, N), code * activation * K))


def test_a_layer_computes_from_it() -> None:
    floats = np.random.default_rng(3).standard_normal((100, 70), np.float32)
    x = np.random.default_rng(4).standard_normal((11, 70), np.float32)
    layer, other = QuantizedLinear(floats, format="tile80"), QuantizedLinear(floats, format="tile64")
    assert np.array_equal(layer(x), other(x))
    assert np.array_equal(layer(x[0]), other(x[0]))
    assert layer.receipt.kernel.startswith("cpu/ternary_matmul/tile80/float32/")  # type: ignore[union-attr]
