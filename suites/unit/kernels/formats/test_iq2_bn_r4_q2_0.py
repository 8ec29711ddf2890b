"""iq2_bn_r4, q2_0 and pq2_0 against the rules of the C originals, written for one weight at a time."""

from __future__ import annotations

import math
import warnings

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.kernels.formats import FORMATS, NonFiniteWarning

Floats = npt.NDArray[np.float32]


def largest_one_by_one(x: Floats) -> np.float32:
    largest = np.float32(0)
    for value in np.abs(x):
        largest = max(largest, value)
    return largest


def q2_0_one_by_one(x: Floats) -> bytes:
    """quantize_row_q2_0_ref for one block of any length; a float beyond int32 becomes INT_MIN, as on x86-64."""
    largest = largest_one_by_one(x)
    with np.errstate(all="ignore"):
        inverse = np.float32(1) / largest if largest > 0 else np.float32(0)
        products = [value * inverse for value in x]
        scale = np.float16(largest).tobytes()
    packed = bytearray(len(x) // 4)
    for j, product in enumerate(products):
        rounded = -(2**31)
        if math.isfinite(product) and abs(product) < 2.0**31:
            rounded = int(abs(float(product)) + 0.5) * (1 if product > 0 else -1)
        packed[j // 4] |= min(max(rounded + 1, 0), 3) << 2 * (j % 4)
    return scale + bytes(packed)


def iq2_bn_r4_one_by_one(x: Floats) -> bytes:
    """quantize_iq2_bn_r4 for four rows."""
    scales = [largest_one_by_one(row) for row in x]
    packed = bytearray(x.shape[1])
    for r, (row, scale) in enumerate(zip(x, scales, strict=True)):
        half = np.float32(0.5) * scale
        for k, value in enumerate(row):
            field = 1 if abs(value) < half else 0 if value < 0 else 2
            block, column = divmod(k, 64)
            packed[64 * block + 16 * (column // 16) + 4 * r + column % 4] |= field << column % 16 // 4 * 2
    return np.array(scales, "<f4").tobytes() + bytes(packed)


AWKWARD = np.array(
    [0, -0.0, 1e-45, 2.9e-39, 2.95e-39, 6e-8, 0.49999997, 0.5, 0.50000006, 1, 1.5, 65519.99, 65520, 1e19, 3.4028235e38],
    np.float32,
)
shares = st.sampled_from([0, 0.005, 0.5, 1])


def unusual(seed: int, nan: float, inf: float, few: bool) -> Floats:
    rng = np.random.default_rng(seed)
    x = rng.choice(rng.choice(AWKWARD, 3) if few else AWKWARD, (4, 128))
    x[rng.random(x.shape) < inf] = np.inf
    x *= rng.choice(np.array([-1, 1], np.float32), x.shape)
    x[rng.random(x.shape) < nan] = np.nan
    return x


def quantized(name: str, x: Floats) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonFiniteWarning)
        return FORMATS[name].quantize(x).tobytes()


@pytest.mark.parametrize("name", ["q2_0", "pq2_0"])
@given(st.integers(0, 2**32), shares, shares, st.booleans())
def test_q2_0_follows_c_on_unusual_values(name: str, seed: int, nan: float, inf: float, few: bool) -> None:
    x = unusual(seed, nan, inf, few)
    assert quantized(name, x) == b"".join(map(q2_0_one_by_one, x.reshape(-1, FORMATS[name].group)))


@given(st.integers(0, 2**32), shares, shares, st.booleans())
def test_iq2_bn_r4_follows_c_on_unusual_values(seed: int, nan: float, inf: float, few: bool) -> None:
    x = unusual(seed, nan, inf, few)
    assert quantized("iq2_bn_r4", x) == iq2_bn_r4_one_by_one(x)


@pytest.mark.parametrize("name", ["q2_0", "pq2_0"])
def test_field_3_is_read_as_2_as_the_original_does(name: str) -> None:
    form = FORMATS[name]
    packed = np.full((1, form.group // 4 + 2), 0xE4, np.uint8)  # fields 0 to 3, from the lowest bits
    packed[0, :2] = np.array([1.5], "<f2").view(np.uint8)
    codes, scales = form.unpack(packed, (1, form.group))
    assert codes.reshape(-1, 4).tolist() == [[-1, 0, 1, 2]] * (form.group // 4)
    assert scales.tolist() == [[1.5]]
    np.testing.assert_array_equal(form.pack(codes, scales), packed)
