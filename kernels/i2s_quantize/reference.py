"""i2s_quantize in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.numerics.input_dtypes import given


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """q = rint(clamp(x / scale, -2, 1)). The contract is the float32 quotient, so no wider type may replace it."""
    with np.errstate(over="ignore", under="ignore"):
        quotient = given(inputs["x"], key.input_dtype) / np.float32(inputs["scale"])
    return {"q": np.rint(np.clip(quotient, -2, 1, out=quotient), out=quotient).astype(np.int8)}
