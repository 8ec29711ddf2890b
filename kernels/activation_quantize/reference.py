"""activation_quantize in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.numerics.input_dtypes import given

LEAST = np.float32(1e-5)
"""The least magnitude by which a row is scaled."""


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """scale = 127 / max(absmax, 1e-5), q = clamp(rint(x * scale), -128, 127), and the sum of q, by row.

    float64 has more than 2 * 24 + 2 bits, so a quotient or product that is rounded to float64 and then to float32
    equals the float32 quotient or product.
    """
    x = given(inputs["x"], key.input_dtype)
    absmax = np.maximum(np.abs(x).max(axis=1), LEAST)
    scale = (127.0 / absmax.astype(np.float64)).astype(np.float32)
    product = (x.astype(np.float64) * scale.astype(np.float64)[:, np.newaxis]).astype(np.float32)
    q = np.clip(np.rint(product), -128, 127).astype(np.int64)
    return {"q": q.astype(np.int8), "scale": scale, "sum": q.sum(axis=1)}
