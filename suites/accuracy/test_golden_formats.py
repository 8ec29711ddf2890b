"""The formats' rules against gguf's quantizer, and the C rules for one weight at a time; bytes that the original
packers wrote are in test_golden_files.py."""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize as gguf_quantize
from hypothesis import given
from hypothesis import strategies as st

from tritmark.kernels.formats import FORMATS, NonFiniteWarning

Floats = npt.NDArray[np.float32]

tq_formats = pytest.mark.parametrize("name", ["tq1_0", "tq2_0"])


def tq_floats(seed: int, magnitude: float, family: str) -> Floats:
    """Three rows of two blocks: Gaussian, or at and next to the ties at half of the largest magnitude."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 512), dtype=np.float32)
    if family == "ties":
        half = np.float32(0.5)
        near = np.array([half, np.nextafter(half, np.float32(0)), np.nextafter(half, np.float32(1)), 0, 1], np.float32)
        x = rng.choice(np.concatenate([near, -near]), x.shape)
    with np.errstate(over="ignore", under="ignore"):
        x *= np.float32(magnitude)
    np.nan_to_num(x, copy=False)
    return x


@tq_formats
@given(st.integers(0, 2**32), st.floats(-42, 38).map(lambda power: 10.0**power), st.sampled_from(["gaussian", "ties"]))
def test_tq_agrees_with_gguf(name: str, seed: int, magnitude: float, family: str) -> None:
    x = tq_floats(seed, magnitude, family)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", NonFiniteWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = gguf_quantize(x, GGMLQuantizationType[name.upper()])
        np.testing.assert_array_equal(FORMATS[name].quantize(x), expected, strict=True)


def tq_one_by_one(x: Floats) -> tuple[list[int], bytes]:
    """The rule of both quantize_row_tq*_0_ref for one block, a weight at a time: lroundf(x / largest) + 1 for each, and
    the scale's bytes.

    Products are rounded to float32, lroundf is done in exact integers; as int, what it gives is cut to 32 bits.
    """
    largest = np.float32(0)
    for value in np.abs(x):
        if not largest > value:
            largest = value
    with np.errstate(all="ignore"):
        inverse = np.float32(1) / largest if largest != 0 else np.float32(0)
        products = [value * inverse for value in x]
        scale = b"\x00\x7e" if math.isnan(largest) else np.float16(largest).tobytes()
    digits = []
    for product in products:
        digit = 1
        if math.isfinite(product) and abs(product) < 2.0**63:
            whole = int(abs(product))
            whole += abs(float(product)) - whole >= 0.5
            digit = ((whole if product > 0 else -whole) + 1) & 0xFFFFFFFF
        digits.append(digit)
    return digits, scale


def tq2_0_one_by_one(x: Floats) -> bytes:
    """quantize_row_tq2_0_ref for one block."""
    digits, scale = tq_one_by_one(x)
    packed = bytearray(64)
    for i, digit in enumerate(digits):
        packed[i // 128 * 32 + i % 32] |= (digit & 3) << (i % 128 // 32 * 2)
    return bytes(packed) + scale


def tq1_0_one_by_one(x: Floats) -> bytes:
    """quantize_row_tq1_0_ref for one block: a byte of digits is computed modulo 256, as uint8_t."""
    digits, scale = tq_one_by_one(x)
    packed = bytearray()
    for first, width, count in ((0, 32, 5), (160, 16, 5), (240, 4, 4)):
        for byte in range(width):
            value = 0
            for digit in range(count):
                value = (value * 3 + digits[first + digit * width + byte]) & 0xFF
            value = value * 3 & 0xFF if count == 4 else value
            packed.append((value * 256 + 242) // 243 & 0xFF)
    return bytes(packed) + scale


ONE_BY_ONE = {"tq1_0": tq1_0_one_by_one, "tq2_0": tq2_0_one_by_one}

AWKWARD = np.array(
    [
        0,
        -0.0,
        1e-45,
        2.9e-39,
        2.95e-39,
        1.2e-38,
        6e-8,
        0.49999997,
        0.5,
        1,
        1.5,
        2.5,
        65519.99,
        65520,
        1e10,
        2**25,
        1e19,
        3.4028235e38,
    ],
    np.float32,
)


@tq_formats
@given(st.integers(0, 2**32), st.sampled_from([0, 0.005, 0.5, 1]), st.sampled_from([0, 0.005, 0.5]), st.booleans())
def test_tq_follows_c_on_unusual_values(name: str, seed: int, share_nan: float, share_inf: float, few: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.choice(rng.choice(AWKWARD, 3) if few else AWKWARD, (2, 256))
    x[rng.random(x.shape) < share_inf] = np.inf
    x *= rng.choice(np.array([-1, 1], np.float32), x.shape)
    x[rng.random(x.shape) < share_nan] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonFiniteWarning)
        packed = FORMATS[name].quantize(x)
    assert [row.tobytes() for row in packed] == [ONE_BY_ONE[name](row) for row in x]


def i2_s_one_by_one(x: Floats) -> tuple[list[int], np.float32]:
    """The rule of quantize_i2_s in Python's float, which is C's double: codes and scale."""
    largest = 0.0
    for value in x.ravel().tolist():
        largest = largest if math.isnan(value) or abs(value) < largest else abs(value)
    codes = [0 if abs(value) < 1e-6 else 1 if value * largest > 0 else -1 for value in x.ravel().tolist()]
    return codes, np.float32(largest)


NEAR_1E_6 = [np.nextafter(np.float32(1e-6), np.float32(toward)) for toward in (0, 1)] + [np.float32(1e-6)]


@pytest.mark.parametrize("name", ["i2_s_x86", "i2_s_arm", "i2_s_x86_r4"])
@given(st.integers(0, 2**32), st.booleans())
def test_i2_s_rule_follows_c(name: str, seed: int, finite: bool) -> None:
    rng = np.random.default_rng(seed)
    values = np.array(
        [0, -0.0, 1e-45, *NEAR_1E_6, 1e-5, 1, 3.4028235e38] + ([] if finite else [np.nan, np.inf]), np.float32
    )
    x = rng.choice(values[rng.integers(0, 2, values.size, dtype=bool) | (values == 0)], (4, 96))
    x *= rng.choice(np.array([-1, 1], np.float32), x.shape)
    codes, scale = i2_s_one_by_one(x)
    with nullcontext() if np.isfinite(x).all() else pytest.warns(NonFiniteWarning):
        packed = FORMATS[name].quantize(x)
    assert packed[96:100].tobytes() == scale.tobytes()
    packed[96:100] = 0
    np.testing.assert_array_equal(packed, FORMATS[name].pack(np.array(codes, np.int8).reshape(x.shape), 0.0))
