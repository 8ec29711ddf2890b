"""A kernel of matmul_fp32: C = A B for float32 matrices, sums and output in float32."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel


@kernel(op="matmul_fp32", dtype="float32")
def matmul(a: Any, b: Any, c: Any) -> None:
    """a is float32 (M, K), b float32 (K, N), c float32 (M, N)."""
    np.matmul(a, b, out=c)
