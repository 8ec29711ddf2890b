"""A kernel of ternary_quantize: for each `block` values scale = max(absmax, 1e-8), and codes -1, 0, 1 by comparison
with scale / 2."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel


@kernel(op="ternary_quantize", dtype="int8", workspace="16 * block + 16384")
def quantize(x: Any, codes: Any, scales: Any, n: int, block: int) -> None:
    """x is float32 (n,), codes int8 (n,), scales float32 (blocks,); the last block may be shorter."""
    with np.errstate(all="ignore"):
        for place, begin in enumerate(range(0, n, block)):
            piece = x[begin : begin + block]
            scales[place] = max(np.abs(piece).max(), np.float32(1e-8))
            # In float64: half of the smallest float32 is not a float32.
            half = 0.5 * np.float64(scales[place])
            codes[begin : begin + block] = (piece > half).astype(np.int8) - (piece < -half)
