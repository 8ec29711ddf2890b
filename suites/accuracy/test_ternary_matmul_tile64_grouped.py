"""ternary_matmul over tile64 with a scale for each group: exact sums of groups, float32 sums in their order, the same
bits everywhere; and products with weights of other formats, computed in these tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from grouped_tiles import GROUPS, grouped_model
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.record import Status
from tritmark.harness.spec import KernelKey
from tritmark.harness.validate.compare import rounded
from tritmark.harness.validate.drawn import judge_drawn
from tritmark.harness.validate.guards import GuardedArray
from tritmark.kernels import OPS, PROVIDER, PackedWeights, QuantizedLinear, activation_quantize, pack_weights
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.api import with_receipt

OP = next(op for op in OPS if op.name == "ternary_matmul")
formats = pytest.mark.parametrize("format", GROUPS)
SHAPES = st.tuples(
    st.integers(1, 9) | st.integers(60, 70), st.integers(1, 70) | st.integers(125, 200), st.integers(1, 13)
)


@formats
@given(
    SHAPES,
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 37]),
    st.integers(1, 5),
    st.sampled_from(["float32", "bfloat16"]),
)
def test_the_bits_are_those_of_float32_sums_in_order(
    isa: str, format: str, shape: tuple[int, int, int], seed: int, gap: int, threads: int, dtype: str
) -> None:
    """With codes of 2 among them."""
    M, N, groups = shape
    K, rng = GROUPS[format] * groups, np.random.default_rng(seed)
    activations = rng.integers(-128, 128, (M, K + gap), dtype=np.int8)[:, :K]
    codes = rng.integers(-1, 3, (N, K), dtype=np.int8)
    scales = (rng.standard_normal((N, groups)) * 10.0 ** rng.integers(-7, 5)).astype(np.float16).astype(np.float32)
    act_scale = rng.uniform(1e-2, 1e3, M).astype(np.float32)
    weights = pack_weights(codes, scales, format=format)
    out, receipt = with_receipt(activations, weights, act_scale=act_scale, dtype=dtype, variant=isa, threads=threads)
    assert (receipt.kernel, receipt.ran, receipt.note) == (f"cpu/ternary_matmul/{format}/{dtype}/{isa}", isa, "")
    expected = grouped_model(activations, codes, scales, act_scale).astype(named_dtype(dtype))
    assert np.array_equal(out, expected)


@formats
@pytest.mark.parametrize("code", [-1, 1, 2])
@pytest.mark.parametrize("activation", [-128, 127])
@pytest.mark.parametrize("groups", [1, 3, 40, 4096])
@pytest.mark.parametrize("M", [1, 2, 33])
def test_sums_of_the_largest_products_are_exact(
    isa: str, format: str, M: int, groups: int, code: int, activation: int
) -> None:
    N, K = (70 if groups < 4096 else 1), groups * GROUPS[format]
    weights = pack_weights(np.full((N, K), code, np.int8), np.float32(2.0**-8), format=format)
    out, _ = with_receipt(np.full((M, K), activation, np.int8), weights, variant=isa, threads=1)
    assert np.array_equal(out, np.full((M, N), code * activation * K / 256, np.float32))


@formats
@pytest.mark.parametrize("M", [1, 2, 5])
def test_each_weight_meets_its_activation_and_its_scale(isa: str, format: str, M: int) -> None:
    """Weight k of row k is 2, and the group of row n has the scale n + 1."""
    group = GROUPS[format]
    codes = 2 * np.eye(2 * group, dtype=np.int8)
    scales = np.arange(1, 4 * group + 1, dtype=np.float32).reshape(2 * group, 2)
    activations = np.tile(np.arange(-64, 64, dtype=np.int8), 4)[: 2 * group]
    weights = pack_weights(codes, scales, format=format)
    out, _ = with_receipt(np.tile(activations, (M, 1)), weights, variant=isa)
    own = scales[np.arange(2 * group), np.arange(2 * group) // group]
    assert np.array_equal(out, np.tile(2 * activations.astype(np.float32) * own, (M, 1)))


@formats
@given(st.integers(1, 7), st.integers(1, 70), st.integers(0, 15), st.sampled_from(["float32", "bfloat16"]))
def test_nothing_is_written_past_a_row_or_the_end(
    isa: str, format: str, M: int, N: int, offset: int, dtype: str
) -> None:
    out = GuardedArray((M, N), named_dtype(dtype), seed=7, offset=offset * named_dtype(dtype).itemsize)
    out.poison()
    weights = pack_weights(np.ones((N, 256), np.int8), np.float32(1), format=format)
    with_receipt(np.ones((M, 256), np.int8), weights, dtype=dtype, out=out.array, variant=isa)
    assert not out.broken()
    assert (out.array.astype(np.float64) == 256).all()


@pytest.mark.parametrize("M", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_float16_is_read_as_numpy_reads_it(isa: str, M: int, dtype: str) -> None:
    """Denormals, both zeros, infinities and NaN among them."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    form = FORMATS["tile64_g32"]
    codes = np.zeros((1 << 16, 32), np.int8)
    codes[:, 0] = 1
    data = form.pack(codes, np.float32(1)).reshape(-1, 128 + 16 * 32)
    data[:, :128] = bits.astype("<u2").view(np.uint8).reshape(-1, 128)
    weights = PackedWeights.from_bytes(data.reshape(-1), "tile64_g32", codes.shape)
    out, _ = with_receipt(np.ones((M, 32), np.int8), weights, dtype=dtype, variant=isa)
    with np.errstate(invalid="ignore"):
        expected = bits.view(np.float16).astype(np.float64)
        expected = rounded(np.where(expected == 0, 0.0, expected), named_dtype(dtype))
    for row in out:
        assert np.array_equal(row.astype(np.float32), expected.astype(np.float32), equal_nan=True)


@formats
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_kernels_pass_on_drawn_cases(isa: str, format: str, dtype: str) -> None:
    key = KernelKey("cpu", OP.name, format, dtype)
    (variant,) = (each for each in PROVIDER.variants if each.key == key and each.name == isa)
    found = judge_drawn(OP, variant, key, corners=(), count=20, seed=11, cores=2, device=None).accuracy
    assert found.status is Status.PASS, found.reason


# Other formats

TILES = {"q2_0": "tile64_g64", "pq2_0": "tile64_g128", "ptq1_0": "tile64_g128", "tq1_0": "tile64_g256"}
TILES["tq2_0"] = "tile64_g256"


def made(format: str, rows: int = 70) -> tuple[PackedWeights, Any, Any]:
    """Weights with codes of 2 where the format has them."""
    form, rng = FORMATS[format], np.random.default_rng(5)
    codes = rng.choice(np.array(form.codes, np.int8), (rows, 768))
    scales = rng.standard_normal((rows, 768 // form.group)).astype(np.float16).astype(np.float32)
    return pack_weights(codes, scales, format=format), codes, scales


@pytest.mark.parametrize(("format", "tile"), TILES.items())
def test_weights_with_scales_of_groups_are_repacked_once(
    monkeypatch: pytest.MonkeyPatch, format: str, tile: str
) -> None:
    monkeypatch.delenv(cpu.FORCE, raising=False)
    weights, codes, scales = made(format)
    activations = np.random.default_rng(6).integers(-128, 128, (3, 768), dtype=np.int8)
    ones = np.ones(3, np.float32)
    for _ in range(2):
        out, receipt = with_receipt(activations, weights, act_scale=ones)
        assert receipt.kernel.startswith(f"cpu/ternary_matmul/{tile}/float32/")
        assert receipt.note == f"computed from {tile}, repacked from {format}"
        assert np.array_equal(out, grouped_model(activations, codes, scales, ones))
    assert weights.packed_as(tile) is weights.packed_as(tile)


@pytest.mark.parametrize("format", ["q2_0", "tq1_0", "tq2_0"])
@pytest.mark.parametrize("asked", [{"variant": "scalar"}, {"requirement": "memory"}, {"requirement": "exactness"}])
def test_bytes_as_stored_are_read_where_that_is_asked(format: str, asked: dict[str, Any]) -> None:
    weights, *_ = made(format)
    _, receipt = with_receipt(np.ones((2, 768), np.int8), weights, **asked)
    assert (receipt.kernel.split("/")[2], receipt.note) == (format, "")


def test_a_layer_computes_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cpu.FORCE, raising=False)
    weights, codes, scales = made("pq2_0")
    x = np.random.default_rng(3).standard_normal((3, 768), np.float32)
    layer = QuantizedLinear(weights)
    y = layer(x)
    assert layer.receipt is not None
    assert layer.receipt.kernel.startswith("cpu/ternary_matmul/tile64_g128/float32/")
    assert layer.receipt.note == "computed from tile64_g128, repacked from pq2_0"
    quantized = activation_quantize(x)
    assert np.array_equal(y, grouped_model(quantized.q, codes, scales, quantized.scale))


def test_float32_scales_are_refused_with_the_reason() -> None:
    why = FORMATS["tile64_g128"].refusal(FORMATS["ort_q2"], (64, 128))
    assert why == "ort_q2 has scales of float32, tile64_g128 of float16"
