"""A kernel of ternary_matmul for tile64: out = activations @ weights.T, times weight_scale / act_scale."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel

PIECE = 256


@kernel(
    op="ternary_matmul",
    format="tile64",
    dtype="float32",
    workspace="32 * (M + 64) * 256 + 1024 * M",
    max={"K": 8388607},
)
def matmul(activations: Any, weights: Any, weight_scale: Any, act_scale: Any, out: Any, N: int, K: int) -> None:
    """activations is int8 (M, K), rows may be strided; weights are packed bytes, act_scale float32 (M,), out float32
    (M, N).

    A tile is 64 rows; of each 4 columns it has 64 bytes: byte 4 * r + c holds column c of the rows r, r + 16, r + 32
    and r + 48 in bits 0-1, 2-3, 4-5 and 6-7, as the field w + 1. 64 bytes with the scale come last.
    """
    groups = -(-K // 4)
    tiles = weights[:-64].reshape(-1, groups, 16, 4)
    factor = np.float64(weight_scale) / act_scale.astype(np.float64)
    for tile, packed in enumerate(tiles):
        acc = np.zeros((len(activations), 64))  # float64: every partial sum is exact
        # Some columns at a time: temporary arrays count as memory.
        for begin in range(0, groups, PIECE // 4):
            some = packed[begin : begin + PIECE // 4]
            columns = some.transpose(1, 0, 2).reshape(16, len(some) * 4)[:, : K - 4 * begin]
            rows = np.concatenate([columns >> shift & 3 for shift in (0, 2, 4, 6)]).astype(np.float64) - 1
            acc += activations[:, 4 * begin : 4 * begin + rows.shape[1]] @ rows.T
        end = min(64 * (tile + 1), N)
        out[:, 64 * tile : end] = acc[:, : end - 64 * tile] * factor[:, np.newaxis]
