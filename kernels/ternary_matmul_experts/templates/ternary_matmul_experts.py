"""A kernel of ternary_matmul_experts for tile64: each row times the weights of its expert, times weight_scale[e] /
act_scale."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel

PIECE = 256


@kernel(
    op="ternary_matmul_experts",
    format="tile64",
    dtype="float32",
    workspace="32 * (M + 64) * 256 + 1024 * M",
    max={"K": 8388607},
)
def experts(
    activations: Any, weights: Any, weight_scale: Any, act_scale: Any, offsets: Any, out: Any, E: int, N: int, K: int
) -> None:
    """activations is int8 (M, K), rows may be strided; weights are packed bytes (E, bytes), weight_scale float32 (E,),
    act_scale float32 (M,), out float32 (M, N). Rows offsets[e] to offsets[e + 1] belong to expert e.

    A tile is 64 rows of weights; of each 4 columns it has 64 bytes: byte 4 * r + c holds column c of the rows r,
    r + 16, r + 32 and r + 48 in bits 0-1, 2-3, 4-5 and 6-7, as the field w + 1. 64 bytes with the scale come last.
    """
    groups = -(-K // 4)
    for e in range(E):
        begin, end = int(offsets[e]), int(offsets[e + 1])
        if begin == end:
            continue
        rows = activations[begin:end]
        factor = np.float64(weight_scale[e]) / act_scale[begin:end].astype(np.float64)
        for tile, packed in enumerate(weights[e, :-64].reshape(-1, groups, 16, 4)):
            acc = np.zeros((len(rows), 64))  # float64: every partial sum is exact
            # Some columns at a time: temporary arrays count as memory.
            for first in range(0, groups, PIECE // 4):
                some = packed[first : first + PIECE // 4]
                columns = some.transpose(1, 0, 2).reshape(16, len(some) * 4)[:, : K - 4 * first]
                codes = np.concatenate([columns >> shift & 3 for shift in (0, 2, 4, 6)]).astype(np.float64) - 1
                acc += rows[:, 4 * first : 4 * first + codes.shape[1]] @ codes.T
            stop = min(64 * (tile + 1), N)
            out[begin:end, 64 * tile : stop] = acc[:, : stop - 64 * tile] * factor[:, np.newaxis]
