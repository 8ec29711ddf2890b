"""A kernel of matmul_bf16: C = A B for bfloat16 matrices, sums and output in float32."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel


@kernel(op="matmul_bf16", dtype="float32")
def matmul(a: Any, b: Any, c: Any) -> None:
    """a is bfloat16 (M, K), b bfloat16 (K, N), c float32 (M, N)."""
    np.matmul(a.astype(np.float32), b.astype(np.float32), out=c)
