"""Special properties of other projects' layouts: rules written for one weight at a time, scales beside the bytes, zero
points, base-3 digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels import PackedWeights, pack_weights
from tritmark.kernels.formats import FORMATS, NonFiniteWarning
from tritmark.kernels.formats.ort_q2 import ORT_Q2
from tritmark.kernels.peers import onnx

pytestmark = pytest.mark.interpreter

Floats = npt.NDArray[np.float32]
F = np.float32
BESIDE = [name for name, form in FORMATS.items() if not form.scale_stored]


def codes_for(name: str, shape: tuple[int, int], seed: int = 0) -> npt.NDArray[np.int8]:
    return np.random.default_rng(seed).choice(np.array(FORMATS[name].codes, np.int8), shape)


def refused(call: Callable[[], object]) -> InvalidArgumentError:
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    return caught.value


def awkward(seed: int, shape: tuple[int, int], *, finite: bool) -> Floats:
    """Rows of few different values, many of them half or two thirds of the largest, or next to it."""
    rng = np.random.default_rng(seed)
    pool = np.array([0, -0.0, 1e-45, 1e-9, 1e-8, 1.1e-8, 1e-5, 1 / 3, 0.5, 2 / 3, 0.75, 1, 1.5, 3e38], F)
    near = np.concatenate([pool, np.nextafter(pool, F(0)), np.nextafter(pool, F(1)), rng.random(4, F)])
    x = np.stack([rng.choice(rng.choice(near, 4), shape[1]) for _ in range(shape[0])])
    x *= rng.choice(np.array([-1, 1], F), shape)
    if not finite:
        x[rng.random(shape) < 0.05] = rng.choice(np.array([np.nan, np.inf, -np.inf], F))
    return x


def found_by(name: str, x: Floats) -> tuple[Any, Any]:
    """Codes and scales by the format's rule; the bytes hold these where x is finite."""
    form = FORMATS[name]
    assert form.rule is not None
    codes, scale = form.rule(x)
    if np.isfinite(x).all():
        packed = form.quantize(x)
        np.testing.assert_array_equal(form.unpack(packed, (len(x), x.shape[1]))[0], codes)
    else:
        with pytest.warns(NonFiniteWarning):
            form.quantize(x)
    return codes, scale


@pytest.mark.parametrize("name", ["iq1_bn", "iq2_bn"])
@given(st.integers(0, 2**32), st.booleans())
def test_rows_are_quantized_as_ik_llama_does(name: str, seed: int, finite: bool) -> None:
    x = awkward(seed, (3, 64), finite=finite)
    x[np.abs(x) > 6e4] = 6e4  # exact in float16
    codes, scales = found_by(name, x)
    for row, found, scale in zip(x, codes, scales, strict=True):
        largest = F(0)
        for value in np.abs(row):
            largest = value if largest < value else largest
        threshold = F(0.5) * largest
        assert scale == largest
        assert found.tolist() == [0 if abs(value) < threshold else -1 if value < 0 else 1 for value in row]


@given(st.integers(0, 2**32), st.booleans())
def test_blocks_are_quantized_as_bitnet_rs_kernels_do(seed: int, finite: bool) -> None:
    x = awkward(seed, (2, 64), finite=finite)
    codes, scales = found_by("bitnet_rs_32", x)
    for block, found, scale in zip(x.reshape(-1, 32), codes.reshape(-1, 32), scales.ravel(), strict=True):
        largest = max((abs(value) for value in block if not math.isnan(value)), default=F(0))
        assert scale == (largest / F(1.5) if largest > F(1e-8) else F(1))
        with np.errstate(all="ignore"):
            assert found.tolist() == [int(v / scale > F(0.5)) - int(v / scale < F(-0.5)) for v in block]


@given(st.integers(0, 2**32), st.booleans())
def test_blocks_are_quantized_as_the_bitnet_rs_quantization_crate_does(seed: int, finite: bool) -> None:
    x = awkward(seed, (2, 64), finite=finite)
    codes, scales = found_by("bitnet_rs_32_signed", x)
    for block, found, scale in zip(x.reshape(-1, 32), codes.reshape(-1, 32), scales.ravel(), strict=True):
        largest = max((abs(value) for value in block if not math.isnan(value)), default=F(0))
        assert scale == (largest if largest else F(1))
        for value, code in zip(block, found, strict=True):
            with np.errstate(all="ignore"):
                quotient = value / scale
            half_away = (
                0 if math.isnan(quotient) else int(math.copysign(math.floor(abs(float(quotient)) + 0.5), quotient))
            )
            assert code == min(max(half_away, -2), 1)


@given(st.integers(0, 2**32))
def test_matrices_are_quantized_by_their_mean_magnitude(seed: int) -> None:
    x = awkward(seed, (16, 32), finite=True)
    mean = F(math.fsum(abs(float(value)) for value in x.ravel()) / x.size)
    with np.errstate(all="ignore"):
        s = F(1) / max(mean, F(1e-5))
        codes, scale = found_by("hf_pack", x)
        assert codes.ravel().tolist() == [min(max(round(float(value * s)), -1), 1) for value in x.ravel()]
        assert scale == F(1) / s
        same, rounded = found_by("gpu_int2", x)
    np.testing.assert_array_equal(same, codes)
    assert rounded == np.float32(ml_dtypes.bfloat16(scale))


@pytest.mark.parametrize("name", ["hf_pack", "gpu_int2"])
def test_a_matrix_with_infinity_has_an_infinite_scale_and_zeros(name: str) -> None:
    x = np.ones((16, 32), F)
    x[3, 4] = np.inf
    codes, scale = found_by(name, x)
    assert not codes.any()
    assert scale == np.inf


def test_scales_of_rows_are_float16_in_iq1_bn_and_float32_in_iq2_bn() -> None:
    codes, scales = codes_for("iq1_bn", (3, 128)), np.array([1 / 3, -0.1, 65519], F)
    for name, dtype in (("iq1_bn", "<f2"), ("iq2_bn", "<f4")):
        packed = FORMATS[name].pack(codes, scales)
        assert packed[:, : np.dtype(dtype).itemsize].tobytes() == scales.astype(dtype).tobytes()
        np.testing.assert_array_equal(FORMATS[name].unpack(packed, (3, 128))[1], scales.astype(dtype).astype(F))
    error = refused(lambda: FORMATS["iq1_bn"].pack(codes, np.array([1, 2, 65520], F)))
    assert (error.argument, error.found, error.legal) == ("scale", "65520.0 at (2,)", "finite as float16")


@given(st.integers(0, 2**32))
def test_digits_are_where_the_formula_of_iq1_bn_puts_them(seed: int) -> None:
    codes = codes_for("iq1_bn", (2, 128), seed)
    values = np.zeros((2, 2, 13), int)
    for (n, k), w in np.ndenumerate(codes):
        block, (group, e) = k // 64, divmod(k % 64, 16)
        byte, power = (12, group) if e == 15 else (3 * group + e // 5, e % 5)
        values[n, block, byte] += (int(w) + 1) * 3**power
    packed = FORMATS["iq1_bn"].pack(codes, 0.0)
    np.testing.assert_array_equal(packed[:, 2:].reshape(2, 2, 13), -(-values * 256 // 243))


@pytest.mark.parametrize(("byte", "digits"), [(0, 5), (11, 5), (12, 4)])
def test_bytes_of_iq1_bn_that_no_digits_make_are_refused(byte: int, digits: int) -> None:
    form = FORMATS["iq1_bn"]
    packed = form.pack(codes_for("iq1_bn", (3, 128)), 1.0)
    written = {-(-value * 256 // 243) for value in range(3**digits)}
    for value in range(256):
        packed[1, 2 + 13 + byte] = value
        if value in written:
            np.testing.assert_array_equal(form.pack(*form.unpack(packed, (3, 128))), packed)
            continue
        error = refused(lambda: form.unpack(packed, (3, 128)))
        assert (error.argument, error.found) == ("packed", f"{value} in byte {byte} of block 3")
        assert error.legal == f"one of the {3**digits} bytes that encode {digits} base-3 digits"


def test_qk256_i2_s_has_the_bytes_of_i2_s_x86_and_one_code_more() -> None:
    codes = codes_for("i2_s_x86", (4, 96))
    packed = FORMATS["qk256_i2_s"].pack(codes, 0.5)
    np.testing.assert_array_equal(packed, FORMATS["i2_s_x86"].pack(codes, 0.5))
    packed[0] |= 0xC0
    assert FORMATS["qk256_i2_s"].unpack(packed, (4, 96))[0][0, 0] == 2
    assert "field 3" in refused(lambda: FORMATS["i2_s_x86"].unpack(packed, (4, 96))).found


def test_what_rows_have_behind_their_end_is_not_looked_at() -> None:
    for name, k, byte in (("qk256", 257, 127), ("ort_q2", 129, 63)):
        form, codes = FORMATS[name], codes_for(name, (2, k))
        packed = form.pack(codes, 1.0)
        packed.reshape(2, -1)[1, byte] = 0xFF
        np.testing.assert_array_equal(form.unpack(packed, (2, k))[0], codes)


@pytest.mark.parametrize("name", BESIDE)
def test_a_scale_beside_the_bytes_is_given_and_kept(name: str) -> None:
    form, shape = FORMATS[name], (64, 256)
    codes = codes_for(name, shape)
    scale = np.arange(1, 1 + math.prod(form.scale_shape(shape)), dtype=F).reshape(form.scale_shape(shape))[()]
    packed = form.pack(codes, scale)
    np.testing.assert_array_equal(packed, form.pack(codes, 1.0))
    error = refused(lambda: PackedWeights.from_bytes(packed, name, shape))
    assert (error.argument, error.found) == ("scale", "none")
    assert refused(lambda: PackedWeights.from_bytes(packed, name, shape, np.ones(3, F))).argument == "scale"
    weights = PackedWeights.from_bytes(packed, name, shape, scale)
    for each in (weights, pack_weights(codes, scale, format=name)):
        np.testing.assert_array_equal(each.unpack()[0], codes, strict=True)
        np.testing.assert_array_equal(each.unpack()[1], scale, strict=True)
        wide = np.repeat(scale, form.group, axis=1) if form.group else scale
        np.testing.assert_array_equal(each.dequantize(), codes * wide, strict=True)


def test_a_scale_for_bytes_that_have_one_is_refused() -> None:
    packed = FORMATS["tile64"].pack(codes_for("tile64", (4, 8)), 0.5)
    error = refused(lambda: PackedWeights.from_bytes(packed, "tile64", (4, 8), 0.5))
    assert (error.argument, error.legal) == ("scale", "none: tile64 has it in the bytes")


def test_a_scale_beside_the_bytes_goes_into_the_bytes_of_another_format() -> None:
    codes = codes_for("hf_pack", (6, 128))
    weights = PackedWeights.from_bytes(FORMATS["hf_pack"].pack(codes, 0.25), "hf_pack", (6, 128), 0.25)
    np.testing.assert_array_equal(weights.packed_as("i2_s_x86"), FORMATS["i2_s_x86"].pack(codes, 0.25))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 9, 13])
def test_rows_of_hf_pack_that_make_no_four_are_filled_up_with_minus_one(n: int) -> None:
    form, codes = FORMATS["hf_pack"], codes_for("hf_pack", (n, 7))
    packed = form.pack(codes, 1.0)
    whole, _ = form.unpack(packed, (4 * len(packed), 7))
    np.testing.assert_array_equal(whole[:n], codes)
    assert np.all(whole[n:] == -1)


@pytest.mark.parametrize("block_size", [16, 32, 64, 128, 256])
def test_a_block_size_of_matmulnbits_is_taken_by_each_call(block_size: int) -> None:
    codes = codes_for("ort_q2", (3, 300))
    packed = ORT_Q2.pack(codes, 1.0, block_size=block_size)
    assert packed.shape == (3, -(-300 // block_size), block_size // 4)
    np.testing.assert_array_equal(packed, onnx.pack(codes, block_size))
    found, scale = ORT_Q2.unpack(packed, (3, 300), block_size=block_size)
    np.testing.assert_array_equal(found, codes)
    assert np.shape(scale) == packed.shape[:2]
    assert ORT_Q2.with_block_size(block_size).group == block_size


@pytest.mark.parametrize("block_size", [0, 8, 48, 512])
def test_another_block_size_is_refused(block_size: int) -> None:
    error = refused(lambda: ORT_Q2.pack(codes_for("ort_q2", (1, 64)), 1.0, block_size=block_size))
    assert (error.argument, error.legal) == ("block_size", "16, 32, 64, 128, 256")


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float16])
def test_zero_points_of_ones_are_made_and_read(dtype: Any) -> None:
    codes = codes_for("ort_q2", (3, 700))
    points = ORT_Q2.zero_points((3, 700), dtype)
    assert points.shape == ((3, 2) if dtype == np.uint8 else (3, 6))
    assert np.all(points == (0x55 if dtype == np.uint8 else 1))
    np.testing.assert_array_equal(ORT_Q2.unpack(ORT_Q2.pack(codes, 1.0), (3, 700), zero_points=points)[0], codes)


def test_other_zero_points_shift_the_codes() -> None:
    packed = ORT_Q2.pack(np.full((1, 256), 1, np.int8), 1.0)  # fields 2
    points = np.array([[0b1101]], np.uint8)  # 1, and 3 for the second block
    found, _ = ORT_Q2.unpack(packed, (1, 256), zero_points=points)
    assert found.tolist() == [[1] * 128 + [-1] * 128]
    np.testing.assert_array_equal(ORT_Q2.unpack(packed, (1, 256), zero_points=np.array([[1, 3]], F))[0], found)
    error = refused(lambda: ORT_Q2.unpack(packed, (1, 256), zero_points=np.array([[1, 0]], F)))
    assert (error.argument, error.found) == ("packed", "field 2 with zero point 0 at (0, 128)")
    for wrong, told in ((np.array([[1, 1.5]], F), "1.5"), (np.ones((1, 3), F), "of shape (1, 3)"), ([1], "a list")):
        error = refused(lambda wrong=wrong: ORT_Q2.unpack(packed, (1, 256), zero_points=wrong))  # type: ignore[misc]
        assert error.argument == "zero_points"
        assert told in error.found
    assert refused(lambda: ORT_Q2.zero_points((1, 256), np.int32)).argument == "dtype"


@pytest.mark.skipif(onnx.missing() is not None, reason="onnxruntime is not installed")
@pytest.mark.parametrize("block_size", [16, 128])
def test_onnx_runtime_reads_the_weights_that_were_packed(block_size: int) -> None:
    """A product with the identity matrix gives the weights exactly."""
    K = 2 * block_size
    codes = codes_for("ort_q2", (5, K))
    product = onnx.OnnxProduct(ORT_Q2.pack(codes, 1.0, block_size=block_size), 0.5, K, accuracy=0)
    np.testing.assert_array_equal(product(np.eye(K, dtype=F)), codes.T * F(0.5))


def test_ort_q2_has_no_rule_and_says_so() -> None:
    assert refused(lambda: ORT_Q2.quantize(np.ones((1, 128), F))).argument == "format"


def test_formats_refuse_what_others_hold_where_it_would_change() -> None:
    tile64 = FORMATS["tile64"]
    assert tile64.refusal(FORMATS["hf_pack"], (5, 7)) is None
    assert tile64.refusal(FORMATS["gpu_int2"], (16, 32)) is None
    assert FORMATS["qk256_i2_s"].refusal(FORMATS["i2_s_x86"], (1, 128)) is None
    assert tile64.refusal(FORMATS["qk256_i2_s"], (1, 128)) == "qk256_i2_s has codes that tile64 cannot store"
    assert FORMATS["qk256"].refusal(tile64, (1, 128)) == "tile64 has codes that qk256 cannot store"
    assert FORMATS["gpu_int2"].refusal(tile64, (8, 32)) == "gpu_int2 cannot hold weights of shape (8, 32)"
    assert FORMATS["iq1_bn"].refusal(FORMATS["iq2_bn"], (1, 64)) == "iq2_bn has scales of float32, iq1_bn of float16"
    assert FORMATS["iq2_bn"].refusal(FORMATS["iq1_bn"], (1, 64)) is None
    assert FORMATS["ort_q2"].refusal(FORMATS["bitnet_rs_32"], (1, 256)) == (
        "bitnet_rs_32 has a scale for each group of 32, ort_q2 a scale for each group of 128"
    )
