"""ternary_matmul_a16 in NumPy, and an error bound for kernels that is known beforehand.

out = weight_scale * sum(w * a) with w in {-1, 0, 1}. The products are exact. Rounded are: the additions of the sum in
float32, in any order and as tensor cores add (bound: matmul/reference.py, with ternary weights as a factor of the
activations' dtype); the product with the scale, to float32; and a 16-bit output, once more.

With a scale d[g] for each of n groups of weights

    out = d[1] s[1] + ... + d[n] s[n],    s[g] = sum(w * a) of the group.

Each s[g] is a sum as above, of the length of a group: its error is at most e T[g] with the sum of magnitudes T[g] =
sum(|w| |a|), so together e (|d[1]| T[1] + ... + |d[n]| T[n]). The sum over the groups is in float32, in any order: a
term is rounded at its product with the scale, and in n - 1 additions at most. Two further roundings are for groups that
are shared: each share is a term. So this adds at most gamma(n + 2) (1 + e) times the same sum of magnitudes (Higham,
"Accuracy and Stability of Numerical Algorithms", 4.2), and half of the least number each time that a result is
denormal. The product with weight_scale, which is 1, and a 16-bit output follow as above.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.matmul.reference import (
    NARROW,
    SMALLEST_NORMAL,
    U_FLOAT32,
    U_FLOAT64,
    bound_of,
    gamma,
    magnitudes,
    relative_bound,
)
from tritmark.kernels.ternary_matmul.scales import grouped, weight_scales

Floats = npt.NDArray[np.float64]

HALF_LEAST = 2.0**-150
"""Half of float32's least number."""


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The product in float64, and its bound. The bound does not apply to NaN and infinite outputs.

    A weight of 0 times an infinity is NaN, as in a dense product.
    """
    with np.errstate(invalid="ignore"):
        return _product(inputs, axes, key)


def scaled_weights(inputs: Arrays, axes: Axes, format: str) -> Floats:
    """The weights of a format with a scale for each group, times the scale: float64 (N, K), exact."""
    form = grouped(format)
    assert form is not None
    scales = weight_scales(inputs, axes, format).astype(np.float64)
    wide: Floats = inputs["weights"] * np.repeat(scales, form.group, axis=1)
    return wide


def _product(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    activations, weights = inputs["activations"], inputs["weights"]
    form, dtype = grouped(key.weight_format), str(activations.dtype)
    if form is None:
        scale = np.float64(inputs["weight_scale"])
        wide = weights.T.astype(np.float64)
        exact = activations.astype(np.float64) @ wide * scale
        bound = bound_of(magnitudes(activations), np.abs(wide, out=wide), dtype) * scale
    else:
        wide = scaled_weights(inputs, axes, key.weight_format).T
        exact = activations.astype(np.float64) @ wide
        bound = _grouped_bound(magnitudes(activations), np.abs(wide), form.group, dtype)
        scales = np.abs(weight_scales(inputs, axes, key.weight_format).astype(np.float64))
        bound += 2 * form.group * SMALLEST_NORMAL * scales.sum(axis=1)
    bound += U_FLOAT32 * (np.abs(exact) + bound) + HALF_LEAST
    if key.dtype in NARROW:
        unit, least = NARROW[key.dtype]
        bound += unit * (np.abs(exact) + bound) + least
    return {"out": exact, "out.bound": bound}


def _grouped_bound(left: Floats, right: Floats, group: int, dtype: str) -> Floats:
    """The largest error of the float32 sum over the groups, except what denormal parts of groups lose; covers the
    roundings of the float64 sum too. left, right: magnitudes."""
    K = left.shape[1]
    roundings, own, part = K // group + 2, gamma(K, U_FLOAT64), relative_bound(group, dtype)
    total = left @ right / (1 - own)
    bound: Floats = (part + gamma(roundings, U_FLOAT32) * (1 + part) + own) * total + roundings * HALF_LEAST
    return bound
