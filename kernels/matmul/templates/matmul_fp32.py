"""A kernel of matmul_fp32: C = A B for float32 matrices, sums and output in float32."""

from typing import Any

from tritmark.harness.candidate import kernel

PIECE = 128
"""Rows and columns at a time: temporary arrays count as memory, and so do the copies of both factors that NumPy's
library makes."""


@kernel(op="matmul_fp32", dtype="float32", workspace="12 * 128 * 128")
def matmul(a: Any, b: Any, c: Any, M: int, N: int, K: int) -> None:
    """a is float32 (M, K), b float32 (K, N), c float32 (M, N)."""
    c[...] = 0
    for top in range(0, M, PIECE):
        rows = slice(top, top + PIECE)
        for left in range(0, N, PIECE):
            columns = slice(left, left + PIECE)
            for begin in range(0, K, PIECE):
                inner = slice(begin, begin + PIECE)
                c[rows, columns] += a[rows, inner] @ b[inner, columns]
