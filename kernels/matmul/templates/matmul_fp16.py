"""A kernel of matmul_fp16: C = A B for float16 matrices, sums and output in float32."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel

PIECE = 128
"""Rows and columns at a time: temporary arrays count as memory, and so do the copies of both factors that NumPy's
library makes."""


@kernel(op="matmul_fp16", dtype="float32", workspace="20 * 128 * 128")
def matmul(a: Any, b: Any, c: Any, M: int, N: int, K: int) -> None:
    """a is float16 (M, K), b float16 (K, N), c float32 (M, N)."""
    c[...] = 0
    for top in range(0, M, PIECE):
        rows = slice(top, top + PIECE)
        for left in range(0, N, PIECE):
            columns = slice(left, left + PIECE)
            for begin in range(0, K, PIECE):
                inner = slice(begin, begin + PIECE)
                c[rows, columns] += a[rows, inner].astype(np.float32) @ b[inner, columns].astype(np.float32)
