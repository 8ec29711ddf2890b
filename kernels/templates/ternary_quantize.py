"""A kernel of ternary_quantize: for each `block` values scale = max(absmax, 1e-8), and codes -1, 0, 1 by comparison with scale / 2."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel


@kernel(op="ternary_quantize", dtype="int8")
def quantize(x: Any, codes: Any, scales: Any, n: int, block: int) -> None:
    """x is float32 (n,), codes int8 (n,), scales float32 (blocks,); the last block may be shorter."""
    with np.errstate(all="ignore"):
        scales[...] = np.maximum(np.maximum.reduceat(np.abs(x), np.arange(0, n, block)), np.float32(1e-8))
        # In float64: half of the smallest float32 is no float32.
        half = np.repeat(0.5 * scales.astype(np.float64), block)[:n]
        codes[...] = (x > half).astype(np.int8) - (x < -half).astype(np.int8)
