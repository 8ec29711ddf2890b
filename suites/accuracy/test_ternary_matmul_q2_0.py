"""ternary_matmul straight from the bytes of q2_0: exact sums of groups, field 3 as +2, the same bits everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.record import Status
from tritmark.harness.spec import KernelKey
from tritmark.harness.validate.compare import rounded
from tritmark.harness.validate.drawn import judge_drawn
from tritmark.harness.validate.guards import GuardedArray
from tritmark.kernels import (
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
GROUP = 64
SHAPES = st.tuples(
    st.integers(1, 9) | st.integers(30, 35), st.integers(1, 70), st.integers(1, 13) | st.integers(16, 40)
)
"""One row of activations meets sixteen groups at a time."""


def model(activations: Any, codes: Any, scales: Any, act_scale: Any) -> Any:
    """The computation of the native kernels, in float64: groups by fours, (p0 + p1) + (p2 + p3), and these in their
    order."""
    groups = scales.shape[1]
    products = np.zeros((len(activations), len(codes), -(-groups // 4) * 4))
    for g in range(groups):
        columns = slice(GROUP * g, GROUP * (g + 1))
        sums = activations[:, columns].astype(np.int64) @ codes[:, columns].astype(np.int64).T
        products[:, :, g] = sums * scales[:, g].astype(np.float64)
    p = products.reshape(*products.shape[:2], -1, 4)
    fours = (p[..., 0] + p[..., 1]) + (p[..., 2] + p[..., 3])
    total = np.add.accumulate(fours, axis=2)[:, :, -1]
    with np.errstate(over="ignore", under="ignore"):
        return (total * (1 / act_scale.astype(np.float64))[:, None]).astype(np.float32)


@given(
    SHAPES,
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 37]),
    st.integers(1, 5),
    st.sampled_from(["float32", "bfloat16"]),
)
def test_the_bits_are_those_of_float64_sums_by_fours(
    isa: str, shape: tuple[int, int, int], seed: int, gap: int, threads: int, dtype: str
) -> None:
    """With codes of 2 among them."""
    M, N, groups = shape
    K, rng = GROUP * groups, np.random.default_rng(seed)
    activations = rng.integers(-128, 128, (M, K + gap), dtype=np.int8)[:, :K]
    codes = rng.integers(-1, 3, (N, K), dtype=np.int8)
    scales = (rng.standard_normal((N, groups)) * 10.0 ** rng.integers(-7, 5)).astype(np.float16).astype(np.float32)
    act_scale = rng.uniform(1e-2, 1e3, M).astype(np.float32)
    weights = pack_weights(codes, scales, format="q2_0")
    out, receipt = with_receipt(activations, weights, act_scale=act_scale, dtype=dtype, variant=isa, threads=threads)
    assert (receipt.kernel, receipt.ran, receipt.note) == (f"cpu/ternary_matmul/q2_0/{dtype}/{isa}", isa, "")
    assert np.array_equal(out, model(activations, codes, scales, act_scale).astype(named_dtype(dtype)))


@pytest.mark.parametrize("code", [-1, 1, 2])
@pytest.mark.parametrize("activation", [-128, 127])
@pytest.mark.parametrize("K", [64, 192, 2560, 1 << 20])
@pytest.mark.parametrize("M", [1, 3, 33])
def test_sums_of_the_largest_products_are_exact(isa: str, M: int, K: int, code: int, activation: int) -> None:
    N = 17 if K < 1 << 20 else 1
    weights = pack_weights(np.full((N, K), code, np.int8), np.float32(2.0**-8), format="q2_0")
    out, _ = with_receipt(np.full((M, K), activation, np.int8), weights, variant=isa, threads=1)
    assert np.array_equal(out, np.full((M, N), code * activation * K / 256, np.float32))


@pytest.mark.parametrize("M", [1, 2])
def test_field_3_of_any_weight_is_2(isa: str, M: int) -> None:
    """Weight k of row k is 2 and meets activation k alone."""
    codes, activations = 2 * np.eye(64, dtype=np.int8), np.arange(-32, 32, dtype=np.int8)
    weights = pack_weights(codes, np.float32(0.5), format="q2_0")
    assert (weights.unpack()[0] == codes).all()
    out = ternary_matmul(np.tile(activations, (M, 1)), weights, variant=isa)
    assert np.array_equal(out, np.tile(activations.astype(np.float32), (M, 1)))


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 15), st.sampled_from(["float32", "bfloat16"]))
def test_nothing_is_written_past_a_row_or_the_end(isa: str, M: int, N: int, offset: int, dtype: str) -> None:
    out = GuardedArray((M, N), named_dtype(dtype), seed=7, offset=offset * named_dtype(dtype).itemsize)
    out.poison()
    weights = pack_weights(np.ones((N, 128), np.int8), np.float32(1), format="q2_0")
    ternary_matmul(np.ones((M, 128), np.int8), weights, dtype=dtype, out=out.array, variant=isa)
    assert not out.broken()
    assert (out.array.astype(np.float64) == 128).all()


@pytest.mark.parametrize("M", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_float16_is_read_as_numpy_reads_it(isa: str, M: int, dtype: str) -> None:
    """Denormals, both zeros, infinities and NaN among them."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    data = np.full((1 << 16, 18), 0x55, np.uint8)  # all codes 0
    data[:, 2] = 0x56  # but the first, which is 1
    data[:, :2] = bits.astype("<u2").view(np.uint8).reshape(-1, 2)
    weights = PackedWeights.from_bytes(data, "q2_0", (1 << 16, 64))
    out, _ = with_receipt(np.ones((M, 64), np.int8), weights, dtype=dtype, variant=isa)
    with np.errstate(invalid="ignore"):
        expected = bits.view(np.float16).astype(np.float64)
        expected = rounded(np.where(expected == 0, 0.0, expected), named_dtype(dtype))
    for row in out:
        assert np.array_equal(row.astype(np.float32), expected.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_kernels_pass_on_drawn_cases(isa: str, dtype: str) -> None:
    key = KernelKey("cpu", OP.name, "q2_0", dtype)
    (variant,) = (each for each in PROVIDER.variants if each.key == key and each.name == isa)
    found = judge_drawn(OP, variant, key, corners=(), count=20, seed=11, cores=2, device=None).accuracy
    assert found.status is Status.PASS, found.reason
    assert (found.largest_ulp or 0.0) <= 1, "more than the rounding of float64 sums"


def test_a_layer_computes_from_the_bytes_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cpu.FORCE, raising=False)
    rng = np.random.default_rng(3)
    x, codes = rng.standard_normal((3, 320), np.float32), rng.integers(-1, 3, (8, 320), dtype=np.int8)
    weights = pack_weights(codes, rng.uniform(0, 2, (8, 5)).astype(np.float32), format="q2_0")
    layer = QuantizedLinear(weights, requirement="memory")
    y = layer(x)
    assert layer.receipt is not None
    assert layer.receipt.kernel.startswith("cpu/ternary_matmul/q2_0/float32/")
    assert (layer.native, layer.receipt.note) == (True, "")
    quantized = activation_quantize(x)
    assert np.array_equal(y, model(quantized.q, *layer.weights.unpack(), quantized.scale))
