"""A kernel of activation_quantize: by row scale = 127 / max(absmax, 1e-5), q = clamp(rint(x * scale), -128, 127),
and the sum of q."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel

PIECE = 512
"""Elements at a time: temporary arrays count as memory."""


@kernel(op="activation_quantize", dtype="int8", workspace="32 * 512")
def quantize(x: Any, q: Any, scale: Any, sum: Any) -> None:
    """x is float32 (M, K), rows may be strided; q int8 (M, K), scale float32 (M,), sum int32 (M,)."""
    with np.errstate(all="ignore"):
        for row, values in enumerate(x):
            largest = max(np.abs(values[begin : begin + PIECE]).max() for begin in range(0, len(values), PIECE))
            scale[row] = np.float32(127) / max(largest, np.float32(1e-5))
            for begin in range(0, len(values), PIECE):
                piece = slice(begin, begin + PIECE)
                q[row, piece] = np.clip(np.rint(values[piece] * scale[row]), -128, 127)
            sum[row] = q[row].sum(dtype=np.int32)
