"""A kernel of i2s_dequantize: x = q * scale in float32."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel


@kernel(op="i2s_dequantize", dtype="float32")
def dequantize(q: Any, scale: Any, x: Any) -> None:
    """q is int8 (n,); x is float32 (n,)."""
    with np.errstate(all="ignore"):
        np.multiply(q.astype(np.float32), np.float32(scale), out=x)
