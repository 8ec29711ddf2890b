"""A kernel of i2s_dequantize in NumPy: it returns its output."""

import numpy as np

from tritmark.harness.candidate import kernel


@kernel(op="i2s_dequantize", dtype="float32")
def dequantize(q, scale):
    """x = q * scale, which overflows to infinity where the contract says so."""
    with np.errstate(over="ignore"):
        return q.astype(np.float32) * np.float32(scale)
