"""ternary_matmul straight from the bytes of tq2_0: exact sums of groups, the same bits everywhere, and what gguf
reads from them."""

from __future__ import annotations

import logging
import warnings

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.record import Status
from tritmark.harness.spec import KernelKey
from tritmark.harness.validate.compare import compare, expectations, rounded
from tritmark.harness.validate.drawn import judge_drawn
from tritmark.kernels import FORMATS, OPS, PROVIDER, PackedWeights, QuantizedLinear, activation_quantize, pack_weights
from tritmark.kernels.native import cpu
from tritmark.kernels.native.cpu import cores
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.ternary_matmul.reference import reference

OP = next(op for op in OPS if op.name == "ternary_matmul")
TQ2_0 = FORMATS["tq2_0"]
SHAPES = st.tuples(st.integers(1, 9) | st.integers(60, 70), st.integers(1, 70), st.integers(1, 9))


def model(activations, codes, scales, act_scale):
    """The computation of the native kernels, in float64: one group after the other."""
    total = np.zeros((len(activations), len(codes)))
    for g in range(scales.shape[1]):
        columns = slice(256 * g, 256 * (g + 1))
        total += (activations[:, columns].astype(np.int64) @ codes[:, columns].astype(np.int64).T) * scales[
            :, g
        ].astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        return (total * (1 / act_scale.astype(np.float64))[:, None]).astype(np.float32)


@given(
    SHAPES,
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 37]),
    st.integers(1, 5),
    st.sampled_from(["float32", "bfloat16"]),
)
def test_the_bits_are_those_of_float64_sums_in_the_groups_order(isa, shape, seed, gap, threads, dtype):
    M, N, blocks = shape
    K, rng = 256 * blocks, np.random.default_rng(seed)
    activations = rng.integers(-128, 128, (M, K + gap), dtype=np.int8)[:, :K]
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    scales = (rng.standard_normal((N, blocks)) * 10.0 ** rng.integers(-7, 5)).astype(np.float16).astype(np.float32)
    act_scale = rng.uniform(1e-2, 1e3, M).astype(np.float32)
    weights = pack_weights(codes, scales, format="tq2_0")
    out, receipt = with_receipt(activations, weights, act_scale=act_scale, dtype=dtype, variant=isa, threads=threads)
    assert (receipt.kernel, receipt.ran, receipt.note) == (f"cpu/ternary_matmul/tq2_0/{dtype}/{isa}", isa, "")
    assert np.array_equal(out, model(activations, codes, scales, act_scale).astype(named_dtype(dtype)))


@pytest.mark.parametrize("M", [1, 3])
@pytest.mark.parametrize("kind", ["quantized", "of any bytes"])
def test_gguf_reads_the_same_weights(isa, M, kind):
    """Its values of weights that it packed itself, in a float64 product, are what the contract admits of the
    kernels."""
    rng = np.random.default_rng(7)
    N, K = 37, 1536
    if kind == "quantized":
        data = gguf.quants.quantize(rng.standard_normal((N, K), np.float32), gguf.GGMLQuantizationType.TQ2_0)
    else:
        data = TQ2_0.pack(
            rng.integers(-1, 2, (N, K), dtype=np.int8), rng.standard_normal((N, K // 256)).astype(np.float32)
        )
    values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType.TQ2_0).astype(np.float64)
    activations, act_scale = rng.integers(-128, 128, (M, K), dtype=np.int8), rng.uniform(0.5, 50, M).astype(np.float32)
    weights = PackedWeights.from_bytes(data, "tq2_0", (N, K))
    codes, scales = weights.unpack()
    inputs = {"activations": activations, "weights": codes, "weight_scale": scales, "act_scale": act_scale}
    for dtype in ("float32", "bfloat16"):
        key = KernelKey("cpu", OP.name, "tq2_0", dtype)
        judged = {
            **reference(inputs, {"M": M, "N": N, "K": K}, key),
            "out": activations @ values.T / act_scale.astype(np.float64)[:, None],
        }
        (expected,) = expectations(OP, {"M": M, "N": N, "K": K}, key, judged)
        out, _ = with_receipt(activations, weights, act_scale=act_scale, dtype=dtype, variant=isa)
        assert compare(expected, out).wrong.size == 0


@pytest.mark.parametrize(("code", "activation"), [(1, -128), (-1, -128), (1, 127), (-1, 127)])
@pytest.mark.parametrize("K", [256, 2560, pytest.param(1 << 20, marks=pytest.mark.long)])
@pytest.mark.parametrize("M", [1, 3, 70])
def test_sums_of_the_largest_products_are_exact(isa, M, K, code, activation):
    N = 5 if K < 1 << 20 else 1
    weights = pack_weights(np.full((N, K), code, np.int8), np.float32(2.0**-8), format="tq2_0")
    out, _ = with_receipt(np.full((M, K), activation, np.int8), weights, variant=isa, threads=1)
    assert np.array_equal(out, np.full((M, N), code * activation * K / 256, np.float32))


@pytest.mark.parametrize("M", [1, 2])
def test_every_float16_is_read_as_numpy_reads_it(isa, M):
    """Denormals, both zeros, infinities and NaN among them."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    data = np.empty((1 << 16, 66), np.uint8)
    data[:, :64] = 0x55  # all codes 0
    data[:, 0] = 0x56  # but the first, which is 1
    data[:, 64:] = bits.astype("<u2").view(np.uint8).reshape(-1, 2)
    weights = PackedWeights.from_bytes(data, "tq2_0", (1 << 16, 256))
    activations = np.ones((M, 256), np.int8)
    for dtype in ("float32", "bfloat16"):
        out, _ = with_receipt(activations, weights, dtype=dtype, variant=isa)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            expected = bits.view(np.float16).astype(np.float64)
            expected = rounded(np.where(expected == 0, 0.0, expected), named_dtype(dtype))
        for row in out:
            assert np.array_equal(row.astype(np.float32), expected.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_kernels_pass_on_drawn_cases(isa, dtype):
    key = KernelKey("cpu", OP.name, "tq2_0", dtype)
    (variant,) = (each for each in PROVIDER.variants if each.key == key and each.name == isa)
    found = judge_drawn(OP, variant, key, corners=(), count=40, seed=11, cores=2, device=None).accuracy
    assert found.status is Status.PASS, found.reason
    assert (found.largest_ulp or 0.0) <= 1, "more than the rounding of float64 sums"


def test_a_layer_computes_from_the_bytes_that_it_was_given(monkeypatch, caplog):
    monkeypatch.delenv(cpu.FORCE, raising=False)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 512), np.float32)
    weights = pack_weights(
        rng.integers(-1, 2, (8, 512), dtype=np.int8), rng.uniform(0, 2, (8, 2)).astype(np.float32), format="tq2_0"
    )
    with caplog.at_level(logging.WARNING):
        layer = QuantizedLinear(weights, requirement="memory")
        y = layer(x)
    assert caplog.text == ""
    assert layer.native
    assert layer.receipt is not None
    assert layer.receipt.native
    assert layer.receipt.kernel.startswith("cpu/ternary_matmul/tq2_0/float32/")
    assert layer.receipt.note == ""
    quantized = activation_quantize(x)
    assert np.array_equal(y, model(quantized.q, *weights.unpack(), quantized.scale))


def test_what_kernels_work_in_is_declared():
    """The memory that a launch keeps, and the stack of each thread."""
    for variant in PROVIDER.variants:
        format = variant.key.format
        if variant.key.op != OP.name or variant.key.device != "cpu" or format in ("tl1", "tl2"):
            continue  # these have tables of the activations
        group = FORMATS[format].group
        tiled = FORMATS[format].tiled  # with up to four initial sums for each row and group
        room = 4 * 3 * (1024 // group) * (4 if tiled else 1) if group else 0
        # The activations in another order, from a line of the cache on.
        room += 3 * 1024 + 63 if format in ("q2_0", "tq2_0") else 0
        arranged = (format == "i2_s_x86" and variant.name != "scalar") or (format, variant.name) in (
            ("tile80", "avx2"),
            ("iq2_bn_r4", "avx2"),
            ("iq2_bn_r4", "avx512"),
            ("iq2_bn_r4", "amx"),
        )
        stack = 4 * 3 * 64 if format == "tile64" or tiled or arranged else 4 * 3 * 80 if format == "tile80" else 0
        lanes = format in ("q2_0", "tq2_0") and variant.name in (
            "avx512",
            "amx",
        )  # sums of three rows stay in registers
        panels = group and not tiled and variant.name != "scalar" and not lanes
        stack += 384 * 64 if arranged else 3 * 896 if panels else 0
        assert variant.workspace({"M": 3, "N": 5, "K": 1024}) == room + stack * cores()
