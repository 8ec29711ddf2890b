"""matmul in NumPy, and error bounds for kernels that are known beforehand.

Notation: u = 2^-24 is the unit roundoff of float32, gamma(n, u) = n u / (1 - n u), T = |A| |B|.

float32 sums of IEEE products and additions in any order: |error| <= gamma(K, u) T (Higham, "Accuracy and Stability of
Numerical Algorithms", 3.1). Tensor cores add 4, 8 or 16 exact products to the previous sum by aligning them
to the largest and truncating (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021). Each
addend and the result lose at most 2 u of the largest, so the worst case, 4 products at a time, has 6 such losses: 12 u
T for every 4 of the K. This bound also covers IEEE kernels of the same inputs.

The alignment uses the exponents of the factors, and a denormal has the exponent of the least normal number: on an H200
sums of products with float16's least denormal lost 2^-37, as if each factor were 2^-14. So in T a denormal counts as
the least normal number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey

U_FLOAT32 = 2.0**-24
U_FLOAT64 = 2.0**-53
SMALLEST_NORMAL = 2.0**-126
"""For float32: the most that a product or sum loses if small results are flushed to zero."""
NARROW = {"float16": (2.0**-11, 2.0**-25), "bfloat16": (2.0**-8, 2.0**-134)}
"""Rounding a float32 x to that type changes it by at most (first number) * |x| + second number (half the smallest
denormal)."""

LEAST_NORMAL = {"float16": 2.0**-14, "bfloat16": 2.0**-126}
"""The least normal numbers of the types that tensor cores multiply."""

Floats = npt.NDArray[np.float64]


def gamma(n: int, u: float) -> float:
    """Largest relative error of n roundings. Raises ValueError if there is no bound."""
    if n * u >= 1:
        raise ValueError(f"{n} roundings of {u} have no bound")
    return n * u / (1 - n * u)


def magnitudes(x: npt.NDArray[Any]) -> Floats:
    """|x| as tensor cores align it, in float64: a denormal counts as the least normal number."""
    wide = np.abs(x.astype(np.float64))
    return np.where(wide != 0, np.maximum(wide, LEAST_NORMAL.get(str(x.dtype), 0.0)), 0.0)


def product_bound(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Floats:
    """Largest error of a kernel's C = A B for inputs of that dtype, against the product in float64: shape (M, N)."""
    return bound_of(magnitudes(a), magnitudes(b), str(a.dtype))


def bound_of(left: Floats, right: Floats, dtype: str) -> Floats:
    """product_bound for matrices of that dtype, from their magnitudes."""
    K = left.shape[1]
    total = left @ right / (1 - gamma(K, U_FLOAT64))
    bound: Floats = (relative_bound(K, dtype) + gamma(K, U_FLOAT64)) * total + 2 * K * SMALLEST_NORMAL
    return bound


def relative_bound(K: int, dtype: str) -> float:
    """The error of a kernel's sum of K products of that dtype, as a part of T, at most."""
    return gamma(K if dtype == "float32" else 12 * -(-K // 4), U_FLOAT32)


def narrowing_bound(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], dtype: str) -> Floats:
    """Largest change of A B by rounding float32 matrices to `dtype`, without overflow: shape (M, N)."""
    if dtype == "float32":
        return np.zeros((a.shape[0], b.shape[1]))
    u, least = NARROW[dtype]
    left, right = np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64))
    change_left, change_right = u * left + least, u * right + least
    return (change_left @ (right + change_right) + left @ change_right) / (1 - gamma(a.shape[1], U_FLOAT64))


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The product in float64, and its bound. The bound does not apply to NaN and infinite outputs."""
    a, b = inputs["a"], inputs["b"]
    with np.errstate(invalid="ignore"):
        return {"c": a.astype(np.float64) @ b.astype(np.float64), "c.bound": product_bound(a, b)}
