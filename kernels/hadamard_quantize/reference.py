"""hadamard_quantize and hadamard_transform in NumPy, and error bounds for kernels that are known beforehand.

For a block of B = 2^L numbers x, signs s and the Sylvester matrix H of -1 and 1

    t = H (s * x),    y = t * c,    c = float32(1 / sqrt(B)).

A kernel adds in float32, in any order of the L stages, and multiplies once. Each t[i] is a sum of all B terms, whose
magnitudes sum to T, and each term passes through L additions. With the unit roundoff u = 2^-24 its error is at most
gamma(L) T (Higham, "Accuracy and Stability of Numerical Algorithms", 4.2); additions of denormals are exact. The
product has one rounding. c is exact for B = 64, 256 and 1024, otherwise it has another one, and a denormal product is
off by at most 2^-150. Together

    |y' - y| <= gamma(n) c T + 2^-150,    n = L + 2    (y with the exact root).

Two cases are sharper. All x of a block are multiples of some unit 2^k. If T <= 2^24 units, every partial sum is a
float32, so the sums are exact in any order, and y is the product rounded to float32: the bound is 0. So inputs such as
multiples of 1/16 have one correct result.

Codes follow the rule of activation_quantize from the float32 numbers of a row y': scale = 127 / max(|y'|, 1e-5), code
= rint(y' * scale), a float32 quotient and product. With e the bound of y, the largest magnitude lies in an interval. So
does the scale, since the quotient falls with it, and so does each code, since the product rises with |y'| and with the
scale. A kernel may give any scale in its interval and any code between the ends of its interval: the codes for y - e
and y + e at both ends of the scale. The ends are equal unless a rounding boundary lies between them, and codes can
differ by one only there. The sum may be any between the sums of the ends.

A row with a NaN or infinity in y has the scale NaN, and codes of 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.activation_quantize.reference import LEAST
from tritmark.kernels.matmul.reference import NARROW, U_FLOAT32, U_FLOAT64, gamma
from tritmark.kernels.numerics.input_dtypes import given

Floats = npt.NDArray[np.float64]

HALF_LEAST = 2.0**-150
"""Half of the least float32: the largest error of a denormal product."""


def factor(block: int) -> np.float32:
    """The c of a block."""
    return np.float32(1 / np.sqrt(block))


def butterflies(blocks: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rows times the Hadamard matrix of -1 and 1, in natural order and in the dtype of the rows."""
    size, h = blocks.shape[-1], 1
    with np.errstate(invalid="ignore", over="ignore"):  # of values that are not finite
        while h < size:
            pairs = blocks.reshape(*blocks.shape[:-1], size // (2 * h), 2, h)
            a, b = pairs[..., 0, :], pairs[..., 1, :]
            blocks = np.stack((a + b, a - b), axis=-2).reshape(blocks.shape)
            h *= 2
    return blocks


def rotated(inputs: Arrays, axes: Axes, key: KernelKey) -> tuple[Floats, Floats]:
    """y (M, K) in float64, and the bound of a kernel's float32 numbers; the bound of a number that is not finite does
    not count."""
    M, K, block = axes["M"], axes["K"], axes["block"]
    with np.errstate(invalid="ignore"):
        x = given(inputs["x"], key.input_dtype) * inputs["signs"].astype(np.float32)
    blocks = x.reshape(M, K // block, block).astype(np.float64)
    sums, total = butterflies(blocks), np.abs(blocks).sum(axis=-1, keepdims=True)
    roundings = block.bit_length() + 1
    exact = total <= _most(x.reshape(blocks.shape))
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        once = (sums * np.float64(factor(block))).astype(np.float32)
        y = np.where(exact, once, sums / np.sqrt(block))
        relative = gamma(roundings, U_FLOAT32) + gamma(roundings, U_FLOAT64)
        bound = np.where(exact, 0.0, relative * total / np.sqrt(block) + HALF_LEAST)
    return y.reshape(M, K), np.broadcast_to(bound, y.shape).reshape(M, K)


def _most(blocks: npt.NDArray[np.float32]) -> Floats:
    """For each block, 2^24 times the largest power of two of which all its numbers are multiples; 0 if it holds NaN or
    infinity."""
    bits = blocks.view(np.uint32)
    exponent, fraction = (bits >> np.uint32(23) & np.uint32(255)).astype(np.int64), bits & np.uint32(0x7FFFFF)
    significand = np.where(exponent > 0, fraction | np.uint32(0x800000), fraction).astype(np.int64)
    lowest = np.log2(np.maximum(significand & -significand, 1)).astype(np.int64)
    unit = np.where(significand > 0, np.maximum(exponent, 1) - 150 + lowest, 200).min(axis=-1, keepdims=True)
    most = np.ldexp(1.0, 24 + unit)
    return np.where((exponent == 255).any(axis=-1, keepdims=True), -1.0, most)


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """y as floats of the key's dtype with a bound; for int8 the middles of the intervals of codes, scales and sums, and
    half of their widths as bounds."""
    y, bound = rotated(inputs, axes, key)
    if key.dtype == "int8":
        return _quantized(y, bound)
    if key.dtype in NARROW:
        unit, least = NARROW[key.dtype]
        with np.errstate(invalid="ignore"):
            bound = bound + unit * (np.abs(y) + bound) + least
    return {"y": y, "y.bound": bound}


def _quantized(y: Floats, e: Floats) -> dict[str, Any]:
    finite = np.asarray(np.isfinite(y).all(axis=1))
    y, e = np.where(finite[:, np.newaxis], y, 0.0), np.where(finite[:, np.newaxis], e, 0.0)
    large = [_scale((np.abs(y) + side * e).max(axis=1)) for side in (1, -1)]
    ends = [_codes(y + side * e, scale[:, np.newaxis].astype(np.float64)) for side in (-1, 1) for scale in large]
    low, high = np.minimum(*ends[:2]), np.maximum(*ends[2:])
    least, most = (scale.astype(np.float64) for scale in large)
    found = {"q": (low, high), "scale": (least, most), "sum": (low.sum(axis=1), high.sum(axis=1))}
    made: dict[str, Any] = {name: (a + b) / 2 for name, (a, b) in found.items()}
    made["scale"] = np.where(finite, made["scale"], np.nan)
    return made | {f"{name}.bound": (b - a) / 2 for name, (a, b) in found.items()}


def _scale(absmax: Floats) -> npt.NDArray[np.float32]:
    return (127.0 / np.maximum(absmax.astype(np.float64), np.float64(LEAST))).astype(np.float32)


def _codes(y: Floats, scale: Floats) -> Floats:
    # Rounded to float64 first; both roundings rise with the product, so the intervals hold.
    return np.clip(np.rint((y * scale).astype(np.float32)), -127, 127).astype(np.float64)
