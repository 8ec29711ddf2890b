"""The arithmetic of the peers from PyPI themselves: blocks of TQ1_0, TQ2_0 and Q2_0 byte for byte, dot products, and
2-bit products."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tritmark.kernels.formats import FORMATS, NonFiniteWarning
from tritmark.kernels.peers import gguf_numpy, libggml, onnx
from tritmark.kernels.peers.launch import gamma, times
from tritmark.kernels.peers.libggml_graph import GgmlProduct

Floats = npt.NDArray[np.float32]

WEIGHTS = 10_000_000
K = 2560

each_format = pytest.mark.parametrize("name", ["tq1_0", "tq2_0"])


def scaled(x: Floats, rng: np.random.Generator, low: int, high: int) -> Floats:
    """Each block times its own power of two, which keeps ties; finite."""
    blocks = x.reshape(-1, 256)
    with np.errstate(over="ignore", under="ignore"):
        blocks *= np.ldexp(np.float32(1), rng.integers(low, high, (len(blocks), 1))).astype(np.float32)
    return np.nan_to_num(x, copy=False)


def near_half(shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Halves of the largest magnitude and the adjacent floats, which 1 / magnitude may move across the tie."""
    half = np.float32(0.5)
    pool = np.array(
        [half, np.nextafter(half, np.float32(0)), np.nextafter(half, np.float32(1)), 0, -0.0, 1], np.float32
    )
    return rng.choice(np.concatenate([pool, -pool]), shape)


def thirds(shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Blocks of any magnitude, no power of two, and the floats around half of it."""
    largest = rng.uniform(1, 2, (shape[0] * shape[1] // 256, 1)).astype(np.float32)
    steps = rng.integers(-4, 5, (len(largest), 256)).astype(np.int32)
    blocks = (np.broadcast_to(largest * np.float32(0.5), steps.shape).copy().view(np.int32) + steps).view(np.float32)
    blocks[:, :1] = largest
    return (blocks * rng.choice(np.array([-1, 1], np.float32), blocks.shape)).reshape(shape)  # type: ignore[no-any-return]


def single(shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Zeros of both signs, and one nonzero value in every second block."""
    blocks = np.where(rng.random(shape[0] * shape[1]) < 0.5, np.float32(0), np.float32(-0.0)).reshape(-1, 256)
    rows = np.arange(0, len(blocks), 2)
    blocks[rows, rng.integers(0, 256, rows.size)] = rng.standard_normal(rows.size, np.float32)
    return blocks.reshape(shape)


def bits(shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Any finite float32."""
    x = rng.integers(0, 1 << 32, shape, dtype=np.uint32).view(np.float32)
    return np.where(np.isfinite(x), x, np.float32(1))


def denormal(shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Below the smallest normal float, some above it: 1 / magnitude overflows if the magnitude is below 2^-128."""
    top = rng.choice(
        np.array([2, 1 << 10, 1 << 21, 1 << 22, 1 << 23, 1 << 24, 1 << 25]), (shape[0] * shape[1] // 256, 1)
    )
    values = rng.integers(0, np.broadcast_to(top, (len(top), 256)), dtype=np.uint32)
    signs = rng.integers(0, 2, values.shape, dtype=np.uint32) << np.uint32(31)
    return (values | signs).view(np.float32).reshape(shape)


def huge(shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Up to the largest float: 1 / magnitude is denormal, and float16 scales overflow."""
    return scaled(near_half(shape, rng) * np.float32(3.4e38), rng, -3, 1)


FAMILIES: dict[str, Callable[[tuple[int, int], np.random.Generator], Floats]] = {
    "normal": lambda shape, rng: rng.standard_normal(shape, np.float32),
    "scaled": lambda shape, rng: scaled(rng.standard_normal(shape, np.float32), rng, -30, 20),
    "ties": lambda shape, rng: scaled(near_half(shape, rng), rng, -30, 20),
    "thirds": thirds,
    "single": single,
    "bits": bits,
    "denormal": denormal,
    "huge": huge,
}


@each_format
@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_are_those_of_libggml_and_gguf(name: str, family: str, ggml: None) -> None:
    """10^7 weights of all families together, for each format."""
    rows = -(-WEIGHTS // len(FAMILIES) // K)
    x = FAMILIES[family]((rows, K), np.random.default_rng([len(family), rows]))
    assert np.isfinite(x).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonFiniteWarning)
        own = FORMATS[name].quantize(x)
    np.testing.assert_array_equal(own, libggml.quantize(name, x), strict=True)
    np.testing.assert_array_equal(own, gguf_numpy.quantize(name, x), strict=True)
    codes, scales = FORMATS[name].unpack(own, x.shape)
    np.testing.assert_array_equal(FORMATS[name].pack(codes, scales), own, strict=True)


@each_format
def test_nan_and_infinity_give_libggmls_bytes(name: str, ggml: None) -> None:
    """After a NaN libggml ignores the previous magnitudes. gguf returns the scale NaN; libggml does so only for a NaN
    at the end."""
    rng = np.random.default_rng(0)
    x = scaled(rng.standard_normal((400, K), np.float32), rng, -20, 20)
    x[rng.random(x.shape) < 0.002] = np.nan
    x[rng.random(x.shape) < 0.0005] = np.inf
    x[rng.random(x.shape) < 0.0005] = -np.inf
    blocks = np.isnan(x).reshape(-1, 256).any(axis=1)
    assert 0 < blocks.sum() < blocks.size
    with pytest.warns(NonFiniteWarning):
        own = FORMATS[name].quantize(x)
    np.testing.assert_array_equal(own, libggml.quantize(name, x), strict=True)
    parted = (own != gguf_numpy.quantize(name, x)).reshape(blocks.size, -1).any(axis=1)
    np.testing.assert_array_equal(parted, blocks & ~np.isnan(x.reshape(-1, 256)[:, -1]))


@each_format
def test_dot_products_are_within_float32_summation(name: str, ggml: None) -> None:
    """The product of the unpacked blocks: integers in each block, exactly; then one product and one addition for each
    block and lane."""
    rng = np.random.default_rng(1)
    weights = FORMATS[name].quantize(rng.standard_normal((24, K), np.float32))
    for x in (
        rng.standard_normal((8, K), np.float32),
        np.full((1, K), 3, np.float32),
        scaled(rng.standard_normal((4, K), np.float32), rng, -9, 9),
    ):
        activations = libggml.quantize_row_q8_K(x)
        codes, scales = FORMATS[name].unpack(weights, (24, K))
        taken, steps = libggml.unpack_q8_K(activations)
        values = (taken.reshape(len(x), -1, 256) * steps[..., np.newaxis].astype(np.float64)).reshape(x.shape)
        by_block = np.repeat(scales, 256, axis=1).astype(np.float64)
        exact = values @ (codes * by_block).T
        largest = np.abs(values) @ ((codes + 2.0) * np.abs(by_block)).T
        found = libggml.dots(name, weights, activations)
        bound = gamma(K // 256 + 18) * largest
        assert (np.abs(found - exact) <= bound).all()
        assert (bound < 1e-4 * largest).all()


@each_format
def test_dot_products_of_integers_are_exact(name: str, ggml: None) -> None:
    rng = np.random.default_rng(2)
    codes, activations = rng.integers(-1, 2, (16, K), np.int8), rng.integers(-128, 128, (5, K), np.int8)
    packed = libggml.pack_q8_K(activations, np.ones(5, np.float32))
    taken, steps = libggml.unpack_q8_K(packed)
    np.testing.assert_array_equal(taken, activations)
    assert (steps == 1).all()
    exact = activations.astype(np.int64) @ codes.T.astype(np.int64)
    np.testing.assert_array_equal(
        libggml.dots(name, FORMATS[name].pack(codes, 1.0), packed), exact.astype(np.float32), strict=True
    )


def test_graphs_and_dot_products_are_the_same(ggml: None) -> None:
    rng = np.random.default_rng(3)
    weights = FORMATS["tq2_0"].quantize(rng.standard_normal((33, K), np.float32))
    activations = libggml.quantize_row_q8_K(rng.standard_normal((5, K), np.float32))
    out = np.empty((5, 33), np.float32)
    GgmlProduct("tq2_0", weights, 33, K, 5, 1).run(activations, out)
    np.testing.assert_array_equal(out, libggml.dots("tq2_0", weights, activations), strict=True)


@pytest.fixture
def q2_0() -> None:
    """Skips the test if libggml has no Q2_0: that of the extra has none, tox -e nightly-peers has one."""
    why = libggml.missing("q2_0")
    if why is not None and os.environ.get("TRITMARK_REQUIRE_Q2_0"):
        pytest.fail(why)
    if why is not None:
        pytest.skip(why)


def test_blocks_of_q2_0_are_the_original_s(q2_0: None) -> None:
    rng = np.random.default_rng(5)
    x = scaled(rng.standard_normal((8, K), np.float32), rng, -20, 12)
    x[:4] = near_half((4, K), rng)
    np.testing.assert_array_equal(FORMATS["q2_0"].quantize(x), libggml.quantize("q2_0", x), strict=True)


def test_dot_products_of_q2_0_are_within_float32_summation(q2_0: None) -> None:
    """The codes that Q8_0 keeps times those of the weights: integers for each 32, then a product and an addition."""
    rng = np.random.default_rng(6)
    weights = FORMATS["q2_0"].quantize(rng.standard_normal((24, K), np.float32))
    codes, scales = FORMATS["q2_0"].unpack(weights, (24, K))
    wide = codes * np.repeat(scales, 64, axis=1).astype(np.float64)
    for activations in (
        libggml.quantize_row_q8_0_ref(rng.standard_normal((8, K), np.float32)),
        libggml.pack_q8_0(rng.integers(-128, 128, (5, K), np.int8)),
    ):
        taken, steps = libggml.unpack_q8_0(activations)
        values = taken * np.repeat(steps, 32, axis=1).astype(np.float64)
        bound = gamma(K // 32 + 18) * (np.abs(values) @ np.abs(wide).T)
        assert (np.abs(libggml.dots("q2_0", weights, activations) - values @ wide.T) <= bound).all()


def test_q8_0_keeps_codes_that_are_exact(ggml: None) -> None:
    """With 127 in each block its scale is 1, and the codes equal the values."""
    codes = np.random.default_rng(7).integers(-127, 128, (6, K), np.int8)
    codes[:, ::32] = 127
    np.testing.assert_array_equal(libggml.quantize_row_q8_0_ref(codes.astype(np.float32)), libggml.pack_q8_0(codes))


def test_q8_k_keeps_codes_that_are_exact(ggml: None) -> None:
    """With -127 in each block its scale is 1, and the codes equal the values."""
    codes = np.random.default_rng(4).integers(-127, 128, (6, K), np.int8)
    codes[:, ::256] = -127
    np.testing.assert_array_equal(
        libggml.quantize_row_q8_K(codes.astype(np.float32)), libggml.pack_q8_K(codes, np.ones(6, np.float32))
    )


SHAPES = [(1, 1, 128), (1, 16, 300), (3, 67, 2600), (8, 130, 2560), (2, 5, 7)]


@pytest.mark.parametrize("accuracy", [0, onnx.INT8])
@pytest.mark.parametrize(("M", "N", "columns"), SHAPES)
def test_ort_is_exact_where_activations_quantize_exactly(
    M: int, N: int, columns: int, accuracy: int, ort: None
) -> None:
    """Integers times a power of two, with 127 or -127 in each block of 128: the scale is that power, and the
    quantization is exact."""
    rng = np.random.default_rng([M, N, columns])
    codes = rng.integers(-1, 2, (N, columns), np.int8)
    integers = rng.integers(-127, 128, (M, columns))
    integers[:, ::128] = rng.choice([-127, 127], integers[:, ::128].shape)
    exponents = rng.integers(-8, 9, (M, 1))
    activations = np.ldexp(integers.astype(np.float32), exponents)
    exact = np.ldexp(times(integers.astype(np.float64), codes), exponents - 3)
    found = onnx.OnnxProduct(onnx.pack(codes), 0.125, columns, accuracy=accuracy)(activations)
    np.testing.assert_array_equal(found, exact.astype(np.float32), strict=True)


def test_ort_codes_are_those_of_the_layout(ort: None) -> None:
    """One nonzero activation at a time reveals each weight."""
    codes = np.random.default_rng(5).integers(-1, 2, (9, 256), np.int8)
    product = onnx.OnnxProduct(onnx.pack(codes), 1.0, 256, accuracy=0)
    np.testing.assert_array_equal(product(np.eye(256, dtype=np.float32)).T, codes.astype(np.float32))
    fields = onnx.pack(codes).reshape(9, 64, 1) >> np.array([0, 2, 4, 6], np.uint8) & 3
    np.testing.assert_array_equal(fields.reshape(9, 256), codes + 1)


def test_ort_with_a_wrong_code_is_not_exact(ort: None) -> None:
    """Check that the test above can fail."""
    codes = np.zeros((3, 256), np.int8)
    packed = onnx.pack(codes)
    packed[1, 1, 5] ^= 1 << 4
    activations = np.full((2, 256), 127, np.float32)
    found: Any = onnx.OnnxProduct(packed, 1.0, 256)(activations)
    np.testing.assert_array_equal(found, [[0, -127, 0]] * 2)
