"""BitNet's linear layer and Hugging Face's layout of its weights, in plain torch operations, for comparison."""

from __future__ import annotations

import torch


def hf_packed(codes: torch.Tensor) -> torch.Tensor:
    """Codes (N, K), N a multiple of 4, in the layout of models on Hugging Face: uint8 (N / 4, K), with the quarters of
    the rows in two bits each."""
    quarters = (codes + 1).to(torch.uint8).chunk(4)
    return sum((quarter << 2 * place for place, quarter in enumerate(quarters)), start=torch.zeros_like(quarters[0]))


def quantized(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 activations and their float32 factors, one per row."""
    largest = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-5)
    scale = torch.full_like(largest, 127) / largest  # 127 / largest would be a product with 1 / largest
    return (x.float() * scale).round().clamp(-128, 127).to(torch.int8), scale.squeeze(-1)


def product(x: torch.Tensor, codes: torch.Tensor, weight_scale: float) -> torch.Tensor:
    """The layer's output without bias, rounded once to float32."""
    q, scale = quantized(x)
    accumulated = q.double() @ codes.double().T
    factor = torch.tensor(weight_scale, dtype=torch.float32).double() / scale.double()
    return (accumulated * factor.unsqueeze(-1)).float()
