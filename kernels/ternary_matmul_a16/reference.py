"""ternary_matmul_a16 in NumPy, and an error bound for kernels that is known beforehand.

out = weight_scale * sum(w * a) with w in {-1, 0, 1}. The products are exact. Rounded are: the additions of the sum in
float32, in any order and as tensor cores add (bound: matmul/reference.py, with ternary weights as a factor of the
activations' dtype); the product with the scale, to float32; and a 16-bit output, once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.matmul.reference import NARROW, U_FLOAT32, bound_of, magnitudes

HALF_LEAST = 2.0**-150
"""Half of float32's least number."""


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The product in float64, and its bound. The bound does not apply to NaN and infinite outputs.

    A weight of 0 times an infinity is NaN, as in a dense product.
    """
    with np.errstate(invalid="ignore"):
        return _product(inputs, key)


def _product(inputs: Arrays, key: KernelKey) -> dict[str, Any]:
    activations, weights = inputs["activations"], inputs["weights"]
    scale = np.float64(inputs["weight_scale"])
    wide = weights.T.astype(np.float64)
    exact = activations.astype(np.float64) @ wide * scale
    bound = bound_of(magnitudes(activations), np.abs(wide, out=wide), str(activations.dtype)) * scale
    bound += U_FLOAT32 * (np.abs(exact) + bound) + HALF_LEAST
    if key.dtype in NARROW:
        unit, least = NARROW[key.dtype]
        bound += unit * (np.abs(exact) + bound) + least
    return {"out": exact, "out.bound": bound}
