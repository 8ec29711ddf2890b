"""A kernel of ternary_matmul for @FORMAT@: out = activations @ weights.T, times weight_scale / act_scale."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel
from tritmark.kernels import FORMATS

ROWS = 64


@kernel(
    op="ternary_matmul",
    format="@FORMAT@",
    dtype="float32",
    workspace="3 * N * K + 8 * K * (M + 64) + 2048 * M + 8 * N + 2097152",
    max={"K": 8388607},
)
def matmul(activations: Any, weights: Any, weight_scale: Any, act_scale: Any, out: Any, N: int, K: int) -> None:
    """activations is int8 (M, K), rows may be strided; weights are packed bytes, act_scale float32 (M,), out float32
    (M, N).

    If the bytes have several scales, weight_scale is 1.
    """
    form = FORMATS["@FORMAT@"]
    codes, scales = form.unpack(weights, (N, K))
    by_group = np.reshape(scales, (N, -1)) if np.ndim(scales) else np.ones((N, 1), np.float32)
    columns = form.group or K
    x = activations.astype(np.float64)  # every partial sum is exact
    factor = np.float64(weight_scale) / act_scale.astype(np.float64)
    for begin in range(0, N, ROWS):
        rows = slice(begin, begin + ROWS)
        total = np.zeros((len(x), len(codes[rows])))
        for group, start in enumerate(range(0, K, columns)):
            share = slice(start, start + columns)
            total += x[:, share] @ codes[rows, share].T.astype(np.float64) * by_group[rows, group].astype(np.float64)
        out[:, rows] = total * factor[:, np.newaxis]
