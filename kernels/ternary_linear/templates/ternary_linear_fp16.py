"""A kernel of ternary_linear_fp16: float16 rows quantized to int8, times row16 weights, times weight_scale / scale."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel

ROWS, PIECE = 64, 256
"""Rows of weights, and columns of them, at a time: temporary arrays count as memory."""


@kernel(
    op="ternary_linear_fp16",
    format="row16",
    dtype="float32",
    workspace="40 * (M + 64) * 256 + 1024 * M + M * K + 32 * K",
    max={"K": 8388607},
)
def linear(x: Any, weights: Any, weight_scale: Any, out: Any, N: int, K: int) -> None:
    """x is float16 (M, K), rows may be strided; weights are packed bytes, out float32 (M, N).

    16 weights of a row are 4 bytes: byte b has the weights b, b + 4, b + 8 and b + 12 in bits 0-1, 2-3, 4-5 and 6-7, as
    the field w + 1. Rows are padded to 64 weights. 64 bytes with the scale come last.
    """
    codes, scale = np.empty(x.shape, np.int8), np.empty(len(x), np.float32)
    with np.errstate(all="ignore"):
        for m, row in enumerate(x):
            wide = row.astype(np.float32)
            scale[m] = np.float32(127) / np.maximum(np.abs(wide).max(), np.float32(1e-5))
            codes[m] = np.clip(np.rint(wide * scale[m]), -128, 127)
    factor = np.float64(weight_scale) / scale.astype(np.float64)
    rows = weights[:-64].reshape(N, -1, 4)
    for begin in range(0, N, ROWS):
        acc = np.zeros((len(x), min(ROWS, N - begin)))  # float64: every partial sum is exact
        for first in range(0, K, PIECE):
            words = rows[begin : begin + ROWS, first // 16 : (first + PIECE) // 16]
            fields = np.stack([words >> shift & 3 for shift in (0, 2, 4, 6)], axis=2).reshape(len(words), -1)
            some = codes[:, first : first + PIECE].astype(np.float64)
            acc += some @ (fields[:, : some.shape[1]].astype(np.float64) - 1).T
        out[:, begin : begin + ROWS] = acc * factor[:, np.newaxis]
