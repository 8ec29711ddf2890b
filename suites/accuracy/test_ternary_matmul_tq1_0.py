"""ternary_matmul straight from the bytes of tq1_0: exact sums of groups, the same bits as from tq2_0, and what gguf
reads from them."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.record import Status
from tritmark.harness.spec import KernelKey
from tritmark.harness.validate.compare import compare, expectations
from tritmark.harness.validate.drawn import judge_drawn
from tritmark.kernels import OPS, PROVIDER, PackedWeights, QuantizedLinear, pack_weights
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.ternary_matmul.reference import reference

OP = next(op for op in OPS if op.name == "ternary_matmul")
SHAPES = st.tuples(st.integers(1, 9) | st.integers(60, 70), st.integers(1, 70), st.integers(1, 9))
POWERS = 3 ** np.arange(5)


@given(
    SHAPES,
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 37]),
    st.integers(1, 5),
    st.sampled_from(["float32", "bfloat16"]),
)
def test_the_bits_are_those_of_tq2_0(
    isa: str, shape: tuple[int, int, int], seed: int, gap: int, threads: int, dtype: str
) -> None:
    """Compare with tq2_0, which has the same scales and its own test."""
    M, N, blocks = shape
    K, rng = 256 * blocks, np.random.default_rng(seed)
    activations = rng.integers(-128, 128, (M, K + gap), dtype=np.int8)[:, :K]
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    scales = (rng.standard_normal((N, blocks)) * 10.0 ** rng.integers(-7, 5)).astype(np.float16).astype(np.float32)
    act_scale = rng.uniform(1e-2, 1e3, M).astype(np.float32)
    weights, twos = (pack_weights(codes, scales, format=format) for format in ("tq1_0", "tq2_0"))
    out, receipt = with_receipt(activations, weights, act_scale=act_scale, dtype=dtype, variant=isa, threads=threads)
    assert (receipt.kernel, receipt.ran, receipt.note) == (f"cpu/ternary_matmul/tq1_0/{dtype}/{isa}", isa, "")
    expected, _ = with_receipt(activations, twos, act_scale=act_scale, dtype=dtype, variant="scalar")
    assert np.array_equal(out, expected)


def digits(byte: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The five digits of bytes, by the formula: times 3^n modulo 256, times 3, over 256."""
    return byte[..., np.newaxis] * POWERS % 256 * 3 // 256


@pytest.mark.parametrize(("M", "groups", "at"), [(1, 1, 0), (3, 1, 0), *((1, 5, at) for at in range(5)), (1, 4, 2)])
def test_every_digit_of_every_byte_is_read_by_the_formula(isa: str, M: int, groups: int, at: int) -> None:
    """Also of bytes that no packer writes: of that group row 256 * j + b has byte b at place j, all other digits are
    0."""
    data = np.zeros((52 * 256, 54), np.uint8)
    data[:, 52:] = np.array([1.0], "<f2").view(np.uint8)
    place, byte = np.divmod(np.arange(len(data)), 256)
    data[np.arange(len(data)), place] = byte
    zeros = np.broadcast_to(np.concatenate([np.zeros(52, np.uint8), data[0, 52:]]), (groups, *data.shape[1:]))
    rows = np.repeat(zeros[np.newaxis], len(data), 0)
    rows[:, at] = data
    shape, scales = (len(data), 256 * groups), np.ones((len(data), groups), np.float32)
    weights = PackedWeights(rows.reshape(len(data), -1), "tq1_0", shape, scales)
    activations = np.random.default_rng(1).integers(-128, 128, (M, 256 * groups), dtype=np.int8)
    others = np.delete(activations.reshape(M, groups, 256), at, 1).sum((1, 2), np.int64)  # whose weights are all -1
    x, n = activations[:, 256 * at : 256 * (at + 1)].astype(np.int64), np.arange(5)
    first = np.where(place < 32, place, np.where(place < 48, 160 + place - 32, 240 + place - 48))
    stride = np.where(place < 32, 32, np.where(place < 48, 16, 4))
    columns = np.minimum(first[:, None] + stride[:, None] * n, 255)
    there = (n < 4) | (place[:, None] < 48)
    sums = (x[:, columns] * np.where(there, digits(byte), 0)).sum(axis=2) - (x.sum(axis=1) + others)[:, None]
    assert np.array_equal(with_receipt(activations, weights, variant=isa)[0], sums.astype(np.float32))


@pytest.mark.parametrize("M", [1, 3])
@pytest.mark.parametrize("kind", ["quantized", "of any codes"])
def test_gguf_reads_the_same_weights(isa: str, M: int, kind: str) -> None:
    """Its values of weights that it packed itself, in a float64 product, are what the contract admits of the
    kernels."""
    rng = np.random.default_rng(7)
    N, K = 37, 1536
    x = rng.standard_normal((N, K), np.float32) if kind == "quantized" else rng.integers(-1, 2, (N, K)).astype("f")
    data = gguf.quants.quantize(x, gguf.GGMLQuantizationType.TQ1_0)
    values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType.TQ1_0).astype(np.float64)
    activations, act_scale = rng.integers(-128, 128, (M, K), dtype=np.int8), rng.uniform(0.5, 50, M).astype(np.float32)
    weights = PackedWeights.from_bytes(data, "tq1_0", (N, K))
    codes, scales = weights.unpack()
    inputs = {"activations": activations, "weights": codes, "weight_scale": scales, "act_scale": act_scale}
    for dtype in ("float32", "bfloat16"):
        key, axes = KernelKey("cpu", OP.name, "tq1_0", dtype), {"M": M, "N": N, "K": K}
        exact: dict[str, Any] = {"out": activations @ values.T / act_scale.astype(np.float64)[:, None]}
        (expected,) = expectations(OP, axes, key, {**reference(inputs, axes, key), **exact})
        out, _ = with_receipt(activations, weights, act_scale=act_scale, dtype=dtype, variant=isa)
        assert compare(expected, out).wrong.size == 0


@pytest.mark.parametrize(("code", "activation"), [(1, -128), (-1, -128), (1, 127), (-1, 127)])
@pytest.mark.parametrize("K", [256, 2560, pytest.param(1 << 20, marks=pytest.mark.long)])
@pytest.mark.parametrize("M", [1, 3, 70])
def test_sums_of_the_largest_products_are_exact(isa: str, M: int, K: int, code: int, activation: int) -> None:
    N = 5 if K < 1 << 20 else 1
    weights = pack_weights(np.full((N, K), code, np.int8), np.float32(2.0**-8), format="tq1_0")
    out, _ = with_receipt(np.full((M, K), activation, np.int8), weights, variant=isa, threads=1)
    assert np.array_equal(out, np.full((M, N), code * activation * K / 256, np.float32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_kernels_pass_on_drawn_cases(isa: str, dtype: str) -> None:
    key = KernelKey("cpu", OP.name, "tq1_0", dtype)
    (variant,) = (each for each in PROVIDER.variants if each.key == key and each.name == isa)
    found = judge_drawn(OP, variant, key, corners=(), count=20, seed=11, cores=2, device=None).accuracy
    assert found.status is Status.PASS, found.reason
    assert (found.largest_ulp or 0.0) <= 1, "more than the rounding of float64 sums"


def test_a_layer_computes_from_the_bytes_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cpu.FORCE, raising=False)
    weights = pack_weights(np.ones((8, 512), np.int8), np.float32(0.5), format="tq1_0")
    layer = QuantizedLinear(weights, requirement="memory")
    layer(np.ones(512, np.float32))
    assert layer.receipt is not None
    assert layer.receipt.kernel.startswith("cpu/ternary_matmul/tq1_0/float32/")
    assert layer.receipt.note == ""
