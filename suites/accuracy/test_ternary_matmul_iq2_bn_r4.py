"""ternary_matmul straight from the bytes of iq2_bn_r4: exact sums of rows, each row's scale, the same bits
everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import NoCompatibleKernelError
from tritmark.harness.record import Status
from tritmark.harness.spec import KernelKey
from tritmark.harness.validate.compare import rounded
from tritmark.harness.validate.drawn import judge_drawn
from tritmark.harness.validate.guards import GuardedArray
from tritmark.kernels import (
    FORMATS,
    OPS,
    PROVIDER,
    PackedWeights,
    QuantizedLinear,
    activation_quantize,
    pack_weights,
    ternary_matmul,
)
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.api import with_receipt

OP = next(op for op in OPS if op.name == "ternary_matmul")
IQ2_BN_R4 = FORMATS["iq2_bn_r4"]
SHAPES = st.tuples(
    st.integers(1, 9) | st.integers(60, 70) | st.integers(190, 200),
    st.integers(1, 18).map(lambda fours: 4 * fours),
    st.integers(1, 12).map(lambda blocks: 64 * blocks),
)


def model(activations: Any, codes: Any, scales: Any, act_scale: Any) -> Any:
    """The computation of the native kernels from scales and exact sums, in float64."""
    sums = (activations.astype(np.int64) @ codes.astype(np.int64).T).astype(np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return ((scales.astype(np.float64) * sums) * (1 / act_scale.astype(np.float64))[:, None]).astype(np.float32)


@given(
    SHAPES,
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 37]),
    st.integers(1, 5),
    st.sampled_from(["int32", "float32", "bfloat16"]),
)
def test_the_bits_are_those_of_exact_sums_and_each_rows_scale(
    isa: str, shape: tuple[int, int, int], seed: int, gap: int, threads: int, dtype: str
) -> None:
    M, N, K = shape
    rng = np.random.default_rng(seed)
    activations = rng.integers(-128, 128, (M, K + gap), dtype=np.int8)[:, :K]
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    scales = (rng.standard_normal(N) * 10.0 ** rng.integers(-30, 30)).astype(np.float32)
    act_scale = rng.uniform(1e-2, 1e3, M).astype(np.float32)
    weights = pack_weights(codes, scales, format="iq2_bn_r4")
    out, receipt = with_receipt(activations, weights, act_scale=act_scale, dtype=dtype, variant=isa, threads=threads)
    assert (receipt.kernel, receipt.ran, receipt.note) == (f"cpu/ternary_matmul/iq2_bn_r4/{dtype}/{isa}", isa, "")
    if dtype == "int32":
        assert np.array_equal(out, activations.astype(np.int64) @ codes.T.astype(np.int64))
    else:
        assert np.array_equal(out, model(activations, codes, scales, act_scale).astype(named_dtype(dtype)))


@pytest.mark.parametrize(("code", "activation"), [(1, -128), (-1, -128), (1, 127), (-1, 127)])
@pytest.mark.parametrize("K", [64 * 7, 64 * 8, 64 * 9, 65536, (1 << 23) - 64])
@pytest.mark.parametrize("M", [1, 3])
def test_sums_of_the_largest_products_are_exact(isa: str, M: int, K: int, code: int, activation: int) -> None:
    """Above int16 within one flush, and up to the longest row that int32 holds."""
    N = 20 if K < 1 << 20 else 4
    data = np.full(IQ2_BN_R4.packed_shape((N, K)), 0xAA if code > 0 else 0, np.uint8)
    weights = PackedWeights(data, "iq2_bn_r4", (N, K), np.ones(N, np.float32))
    acc, _ = with_receipt(np.full((M, K), activation, np.int8), weights, dtype="int32", variant=isa, threads=1)
    assert np.array_equal(acc, np.full((M, N), code * activation * K))


@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 15), st.sampled_from(["int32", "float32", "bfloat16"]))
def test_nothing_is_written_past_a_row_or_the_end(isa: str, M: int, fours: int, offset: int, dtype: str) -> None:
    N, K = 4 * fours, 128
    out = GuardedArray((M, N), named_dtype(dtype), seed=7, offset=offset * named_dtype(dtype).itemsize)
    out.poison()
    weights = pack_weights(np.ones((N, K), np.int8), np.float32(1), format="iq2_bn_r4")
    ternary_matmul(np.ones((M, K), np.int8), weights, dtype=dtype, out=out.array, variant=isa)
    assert not out.broken()
    assert (out.array.astype(np.float64) == K).all()


@pytest.mark.parametrize("M", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scales_of_any_value_are_taken_as_they_are(isa: str, M: int, dtype: str) -> None:
    """Denormals, both zeros, infinities and NaN among them; a row of zeros times infinity is no number."""
    scales = np.array([0, -0.0, 1e-45, -1e-39, 1.5, -3e38, np.inf, -np.inf, np.nan, -np.nan, np.inf, 7], np.float32)
    codes = np.zeros((12, 64), np.int8)
    codes[:10, 63] = 1
    weights = pack_weights(codes, scales, format="iq2_bn_r4")
    out, _ = with_receipt(np.full((M, 64), 2, np.int8), weights, dtype=dtype, variant=isa)
    with np.errstate(invalid="ignore"):
        expected = rounded(2.0 * codes.sum(axis=1) * scales.astype(np.float64), named_dtype(dtype))
    for row in out:
        assert np.array_equal(row.astype(np.float32), expected.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16"])
def test_the_kernels_pass_on_drawn_cases(isa: str, dtype: str) -> None:
    key = KernelKey("cpu", OP.name, "iq2_bn_r4", dtype)
    (variant,) = (each for each in PROVIDER.variants if each.key == key and each.name == isa)
    found = judge_drawn(OP, variant, key, corners=(), count=20, seed=11, cores=2, device=None).accuracy
    assert found.status is Status.PASS, found.reason


def test_a_layer_computes_from_the_bytes_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cpu.FORCE, raising=False)
    rng = np.random.default_rng(3)
    x, codes = rng.standard_normal((3, 512), np.float32), rng.integers(-1, 2, (8, 512), dtype=np.int8)
    layer = QuantizedLinear(pack_weights(codes, rng.uniform(0, 2, 8).astype(np.float32), format="iq2_bn_r4"))
    y = layer(x)
    assert layer.receipt is not None
    assert layer.receipt.kernel.startswith("cpu/ternary_matmul/iq2_bn_r4/float32/")
    assert (layer.native, layer.receipt.note) == (True, "")
    quantized = activation_quantize(x)
    assert np.array_equal(y, model(quantized.q, *layer.weights.unpack(), quantized.scale))


def test_one_scale_is_not_repacked_into_it() -> None:
    """And weights of it, whose rows have a scale each, into no format with one."""
    with pytest.raises(
        NoCompatibleKernelError, match="iq2_bn_r4: tile64 has one scale, iq2_bn_r4 a scale for each row"
    ):
        with_receipt(np.ones((1, 64), np.int8), pack_weights(np.ones((4, 64), np.int8), 1.0), variant="neon")
    weights = pack_weights(np.ones((4, 64), np.int8), 1.0, format="iq2_bn_r4")
    with pytest.raises(NoCompatibleKernelError, match="tile64: iq2_bn_r4 has a scale for each row, tile64 one scale"):
        with_receipt(np.ones((1, 64), np.int8), weights, variant="neon")
