"""A kernel of activation_quantize: by row scale = 127 / max(absmax, 1e-5), q = clamp(rint(x * scale), -128, 127), and the sum of q."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel


@kernel(op="activation_quantize", dtype="int8")
def quantize(x: Any, q: Any, scale: Any, sum: Any) -> None:
    """x is float32 (M, K), its rows perhaps apart; q int8 (M, K), scale float32 (M,), sum int32 (M,)."""
    with np.errstate(all="ignore"):
        scale[...] = np.float32(127) / np.maximum(np.abs(x).max(axis=1), np.float32(1e-5))
        q[...] = np.clip(np.rint(x * scale[:, np.newaxis]), -128, 127).astype(np.int8)
        sum[...] = q.sum(axis=1, dtype=np.int32)
