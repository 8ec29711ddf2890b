"""A kernel of ternary_linear_fp32: float32 rows quantized to int8, times row16 weights, times weight_scale / scale."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel

PIECE = 64
"""Rows of weights at a time: temporary arrays are memory too."""


@kernel(
    op="ternary_linear_fp32", format="row16", dtype="float32", workspace="32 * (M + 64) * (K + 64)", max={"K": 8388607}
)
def linear(x: Any, weights: Any, weight_scale: Any, out: Any, N: int, K: int) -> None:
    """x is float32 (M, K), its rows perhaps apart; weights are packed bytes, out float32 (M, N).

    Byte b of a word of four holds the weights 4 * i + b of 16 in bits 2 * i and 2 * i + 1, as the field w + 1; a row is
    padded to 16 bytes. 64 bytes with the scale come last.
    """
    with np.errstate(all="ignore"):
        wide = x.astype(np.float32)
        scale = np.float32(127) / np.maximum(np.abs(wide).max(axis=1), np.float32(1e-5))
        codes = np.clip(np.rint(wide * scale[:, np.newaxis]), -128, 127).astype(np.float64)
        words = weights[:-64].reshape(N, -1, 4)
        factor = np.float64(weight_scale) / scale.astype(np.float64)
        for begin in range(0, N, PIECE):
            some = words[begin : begin + PIECE]
            fields = np.stack([some >> shift & 3 for shift in (0, 2, 4, 6)], axis=2)
            rows = fields.reshape(len(some), -1)[:, :K].astype(np.float64) - 1
            # float64, in which every partial sum is exact
            out[:, begin : begin + PIECE] = codes @ rows.T * factor[:, np.newaxis]
