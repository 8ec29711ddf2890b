"""A kernel of i2s_quantize: q = rint(clamp(x / scale, -2, 1)), the division in float32, ties to even."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel


@kernel(op="i2s_quantize", dtype="int8")
def quantize(x: Any, scale: Any, q: Any) -> None:
    """x is float32 (n,); q is int8 (n,)."""
    with np.errstate(all="ignore"):
        q[...] = np.rint(np.clip(x / np.float32(scale), -2, 1)).astype(np.int8)
