"""Fields of MLX, compressed-tensors and ONNX Runtime: their own quantizers, offsets that are not ternary, experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.formats.compressed_tensors_2 import FORMAT as COMPRESSED
from tritmark.kernels.formats.mlx_q2 import FORMAT as MLX
from tritmark.kernels.formats.ort_q2 import ORT_Q2
from tritmark.kernels.formats.ort_q2_sm80 import FORMAT as SM80

pytestmark = pytest.mark.interpreter

VECTORS = Path(__file__).parents[2] / "weights" / "vectors"
F = np.float32


def ternary(shape: tuple[int, ...], seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-1, 2, shape, np.int8)


def floats(seed: int, shape: tuple[int, int]) -> Any:
    """Rows of each kind: Gaussian, ternary, of one sign, sparse, tiny."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(F)
    x[0] = ternary((shape[1],), seed) * F(0.3)
    x[1] = np.abs(x[1])
    x[2][rng.random(shape[1]) < 0.99] = 0
    x[3] *= F(1e-8)
    return x


@pytest.mark.parametrize("stem", sorted(path.stem for path in VECTORS.glob("mlx_q_*.npz")))
def test_mlx_quantizes_to_four_levels(stem: str) -> None:
    with np.load(VECTORS / f"{stem}.npz") as vector:
        found = MLX.quantize_affine(vector["x"], group_size=int(vector["group_size"]))
        for part, key in zip(found, ("packed", "scales", "biases"), strict=True):
            np.testing.assert_array_equal(part, vector[key], key, strict=True)
        np.testing.assert_array_equal(MLX.dequantize_affine(*found), vector["dequant_c"], strict=True)
        with pytest.raises(InvalidArgumentError, match="field 3 for the weight at"):
            MLX.unpack(found.packed, vector["x"].shape, group_size=int(vector["group_size"]))


@pytest.mark.parametrize("stem", sorted(path.stem for path in VECTORS.glob("ort_q_*.npz")))
def test_onnx_runtime_quantizes_to_four_levels(stem: str) -> None:
    with np.load(VECTORS / f"{stem}.npz") as vector:
        size, columns = int(vector["block_size"]), vector["x"].shape[1]
        found = ORT_Q2.quantize_affine(vector["x"], block_size=size, symmetric=bool(vector["symmetric"]))
        for part, key in zip(found, ("packed", "scales", "zero_points"), strict=True):
            np.testing.assert_array_equal(part, vector[key], key, strict=True)
        values = ORT_Q2.dequantize_affine(found.packed, found.scales, found.zero_points, columns)
        np.testing.assert_array_equal(values, vector["dequant_c"], strict=True)


@given(st.integers(0, 2**32), st.sampled_from([32, 64, 128]))
def test_mlx_agrees(seed: int, size: int) -> None:
    mx = pytest.importorskip("mlx.core")
    x = floats(seed, (6, 256))
    words, scales, biases = mx.quantize(mx.array(x), group_size=size, bits=2)
    found = MLX.quantize_affine(x, group_size=size)
    np.testing.assert_array_equal(found.packed, np.array(words).view(np.uint8))
    np.testing.assert_array_equal(found.scales, np.array(scales))
    np.testing.assert_array_equal(found.biases, np.array(biases))
    values = mx.dequantize(words, scales, biases, group_size=size, bits=2)
    np.testing.assert_array_equal(MLX.dequantize_affine(*found), np.array(values))


@given(st.integers(0, 2**32), st.sampled_from([16, 32, 64, 128]), st.sampled_from([128, 200, 1000]), st.booleans())
def test_onnx_runtime_agrees(seed: int, size: int, columns: int, symmetric: bool) -> None:
    runtime = pytest.importorskip("onnxruntime.capi._pybind_state")
    x = floats(seed, (6, columns))
    blocks = -(-columns // size)
    packed, scales = np.zeros((6, blocks, size // 4), np.uint8), np.zeros(6 * blocks, F)
    points = np.zeros(6 * -(-blocks // 4), np.uint8)
    runtime.quantize_matmul_2bits(packed, np.ascontiguousarray(x.T), scales, points, size, 6, columns, symmetric)
    found = ORT_Q2.quantize_affine(x, block_size=size, symmetric=symmetric)
    np.testing.assert_array_equal(found.packed, packed)
    np.testing.assert_array_equal(found.scales, scales.reshape(6, -1))
    if symmetric:
        assert found.zero_points is None
    else:
        assert found.zero_points is not None
        np.testing.assert_array_equal(found.zero_points, points.reshape(6, -1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_quantizers_refuse_numbers_that_are_not_finite(value: float) -> None:
    x = np.ones((2, 128), F)
    x[1, 3] = value
    for form in (MLX, ORT_Q2):
        with pytest.raises(InvalidArgumentError, match="finite numbers"):
            form.quantize_affine(x)


@pytest.mark.parametrize("size", [16, 48, 0, "128", None])
def test_group_sizes_that_mlx_does_not_have_are_refused(size: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="legal: 32, 64, 128"):
        MLX.pack(ternary((2, 128)), 1.0, group_size=size)
    with pytest.raises(InvalidArgumentError, match="legal: group_size"):
        MLX.pack(ternary((2, 128)), 1.0, block_size=128)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"biases": None}, "biases is a NoneType"),
        ({"scales": np.ones((2, 3), F)}, "scales is of shape"),
        ({"scales": np.full((2, 2), np.nan, F)}, r"scales is nan at \(0, 0\)"),
        ({"biases": np.full((2, 2), -0.25, np.float16)}, r"-0.25 beside the scale 0.5 at \(0, 0\)"),
    ],
)
def test_offsets_that_are_not_ternary_are_refused(change: dict[str, Any], told: str) -> None:
    beside: dict[str, Any] = {"scales": np.full((2, 2), 0.5, np.float16), "biases": np.full((2, 2), -0.5, np.float16)}
    packed = MLX.pack(ternary((2, 256)), 1.0)
    codes, scales = MLX.unpack(packed, (2, 256), **beside)
    np.testing.assert_array_equal(codes, ternary((2, 256)))
    np.testing.assert_array_equal(scales, F(0.5))
    with pytest.raises(InvalidArgumentError, match=told):
        MLX.unpack(packed, (2, 256), **{**beside, **change})


@given(st.integers(0, 2**32), st.sampled_from(sorted(FORMATS)))
def test_experts_are_matrices_one_after_another(seed: int, name: str) -> None:
    form, rng = FORMATS[name], np.random.default_rng(seed)
    shape = max(64, form.row_multiple), 768
    codes = np.stack([form.sample(shape, rng) for _ in range(3)])
    scale = np.stack([np.full(form.scale_shape(shape), each, F) for each in (0.5, 1, 2)])
    packed = form.pack(codes, scale)
    np.testing.assert_array_equal(packed, np.stack([form.pack(*each) for each in zip(codes, scale, strict=True)]))
    for given_bytes in (packed, packed.ravel()):
        found, scales = form.unpack(given_bytes, codes.shape)
        np.testing.assert_array_equal(found, codes, strict=True)
        np.testing.assert_array_equal(scales, scale if form.scale_stored else np.ones_like(scale))
    with pytest.raises(InvalidArgumentError, match="legal: the bytes of 3 experts"):
        form.unpack(packed.ravel()[:-1], codes.shape)
    codes[1, 2, 5] = 3
    with pytest.raises(InvalidArgumentError, match=r"codes of expert 1 is 3 at \(2, 5\)"):
        form.pack(codes, scale)


def test_compressed_tensors_has_no_code_2() -> None:
    packed = COMPRESSED.pack(ternary((3, 37)), 1.0)
    assert packed.shape == (3, 12)
    assert not packed[:, 10:].any()
    packed[1, 2] = 0
    with pytest.raises(InvalidArgumentError, match=r"field 0 for the weight at \(1, 8\); legal: 1, 2, 3 for"):
        COMPRESSED.unpack(packed, (3, 37))
    for size in (0, True, "64"):
        with pytest.raises(InvalidArgumentError, match="group_size is"):
            COMPRESSED.pack(ternary((3, 37)), 1.0, group_size=size)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_order_of_cuda_kernels_changes_no_level(symmetric: bool) -> None:
    x = floats(1, (8, 256))
    plain = ORT_Q2.quantize_affine(x, block_size=64, symmetric=symmetric)
    found = SM80.quantize_affine(x, block_size=64, symmetric=symmetric)
    assert found.packed.shape == plain.packed.shape
    assert (found.packed != plain.packed).any()
    np.testing.assert_array_equal(found.scales, plain.scales)
    beside = plain.scales, plain.zero_points, 256
    values = ORT_Q2.dequantize_affine(plain.packed, *beside)
    np.testing.assert_array_equal(SM80.dequantize_affine(found.packed, *beside), values, strict=True)
