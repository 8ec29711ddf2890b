"""A kernel of i2s_quantize: q = rint(clamp(x / scale, -2, 1)), the division in float32, ties to even."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel

PIECE = 4096
"""Elements at a time: temporary arrays count as memory."""


@kernel(op="i2s_quantize", dtype="int8", workspace="16 * 4096")
def quantize(x: Any, scale: Any, q: Any) -> None:
    """x is float32 (n,); q is int8 (n,)."""
    with np.errstate(all="ignore"):
        for begin in range(0, len(x), PIECE):
            piece = slice(begin, begin + PIECE)
            q[piece] = np.rint(np.clip(x[piece] / np.float32(scale), -2, 1))
