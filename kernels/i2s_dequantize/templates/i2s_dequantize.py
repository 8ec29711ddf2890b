"""A kernel of i2s_dequantize: x = q * scale in float32."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel

PIECE = 4096
"""Elements at a time: temporary arrays count as memory."""


@kernel(op="i2s_dequantize", dtype="float32", workspace="16 * 4096")
def dequantize(q: Any, scale: Any, x: Any) -> None:
    """q is int8 (n,); x is float32 (n,)."""
    with np.errstate(all="ignore"):
        for begin in range(0, len(q), PIECE):
            piece = slice(begin, begin + PIECE)
            x[piece] = q[piece].astype(np.float32) * np.float32(scale)
