"""A kernel of hadamard_quantize: each row times signs and, in blocks, the Walsh-Hadamard matrix over the root of the
block; then scale = 127 / max(absmax, 1e-5), q = clamp(rint(y * scale), -128, 127), and the sum of q."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel


def rotated(x: Any, block: int) -> Any:
    """One block, float32 (block,)."""
    h = 1
    while h < block:
        a, b = x.reshape(-1, 2, h).swapaxes(0, 1)
        x = np.stack([a + b, a - b], axis=1).reshape(-1)
        h *= 2
    return x * np.float32(1 / np.sqrt(block))


@kernel(op="hadamard_quantize", dtype="int8", workspace="65536")
def quantize(x: Any, signs: Any, q: Any, scale: Any, sum: Any, K: int, block: int) -> None:
    """x is float32 (M, K), rows may be strided; signs int8 (K,), q int8 (M, K), scale float32 (M,), sum int32 (M,).

    Blocks are rotated twice, because temporary arrays count as memory."""

    def blocks(row: int) -> Any:
        for at in range(0, K, block):
            piece = slice(at, at + block)
            yield piece, rotated(x[row, piece] * signs[piece].astype(np.float32), block)

    with np.errstate(all="ignore"):
        for row in range(len(x)):
            largest = [float(np.abs(y).max()) for _, y in blocks(row)]  # NaN if one of the block is
            finite = all(np.isfinite(largest))
            scale[row] = np.float32(127) / np.float32(max(*largest, 1e-5)) if finite else np.nan
            for piece, y in blocks(row):
                q[row, piece] = np.clip(np.rint(y * scale[row]), -128, 127) if finite else 0
            sum[row] = q[row].sum(dtype=np.int32)
