"""A kernel of ternary_matmul_fp16 for row16: out = activations @ weights.T * weight_scale, sums in float32."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel

ROWS = 64
PIECE = 256
"""Rows of weights and columns at a time: temporary arrays count as memory, and so do the copies that NumPy's library
makes."""


@kernel(
    op="ternary_matmul_fp16",
    format="row16",
    dtype="float32",
    workspace="20 * (M + 64) * 256 + 1024 * M",
    max={"K": 1048576},
)
def matmul(activations: Any, weights: Any, weight_scale: Any, out: Any, N: int, K: int) -> None:
    """activations is float16 (M, K), rows may be strided; weights are packed bytes, out float32 (M, N).

    16 weights of a row are 4 bytes: byte b has the weights b, b + 4, b + 8 and b + 12 in bits 0-1, 2-3, 4-5 and 6-7, as
    the field w + 1. Rows are padded to 64 weights. 64 bytes with the scale come last.
    """
    rows = weights[:-64].reshape(N, -1, 4)
    for begin in range(0, N, ROWS):
        some = out[:, begin : begin + ROWS]
        some[...] = 0
        for first in range(0, K, PIECE):
            words = rows[begin : begin + ROWS, first // 16 : (first + PIECE) // 16]
            codes = np.stack([words >> shift & 3 for shift in (0, 2, 4, 6)], axis=2).reshape(len(words), -1)
            x = activations[:, first : first + PIECE].astype(np.float32)
            some += x @ (codes[:, : x.shape[1]].astype(np.float32) - 1).T
        some *= weight_scale
