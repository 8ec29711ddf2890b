"""A kernel of i2s_dequantize in torch: it takes tensors that are views of the harness's memory, and writes in place."""

import torch

from tritmark.harness.candidate import kernel


@kernel(op="i2s_dequantize", dtype="float32", framework="torch")
def dequantize(q: torch.Tensor, scale: float, x: torch.Tensor) -> None:
    """x = q * scale."""
    torch.mul(q, float(scale), out=x)
