"""A kernel of i2s_dequantize in NumPy, some elements at a time: temporary arrays count as memory."""

import numpy as np

from tritmark.harness.candidate import kernel


@kernel(op="i2s_dequantize", dtype="float32", workspace="16 * 4096")
def dequantize(q, scale, x):
    """x = q * scale; it overflows to infinity, as the contract requires."""
    with np.errstate(over="ignore"):
        for begin in range(0, len(q), 4096):
            piece = slice(begin, begin + 4096)
            x[piece] = q[piece].astype(np.float32) * np.float32(scale)
