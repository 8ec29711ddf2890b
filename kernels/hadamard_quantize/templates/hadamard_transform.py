"""A kernel of hadamard_transform: each row times signs and, in blocks, the Walsh-Hadamard matrix over the root of the
block."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel


@kernel(op="hadamard_transform", dtype="float32", workspace="65536")
def transform(x: Any, signs: Any, y: Any, K: int, block: int) -> None:
    """x is float32 (M, K), rows may be strided; signs int8 (K,), y float32 (M, K)."""
    with np.errstate(all="ignore"):
        for row in range(len(x)):
            for at in range(0, K, block):
                piece = slice(at, at + block)
                values, h = x[row, piece] * signs[piece].astype(np.float32), 1
                while h < block:
                    a, b = values.reshape(-1, 2, h).swapaxes(0, 1)
                    values = np.stack([a + b, a - b], axis=1).reshape(-1)
                    h *= 2
                y[row, piece] = values * np.float32(1 / np.sqrt(block))
