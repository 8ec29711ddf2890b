"""A linear layer of ternary floats that stays packed, for models whose floats do not fit into memory."""

from __future__ import annotations

import torch

from tritmark.kernels.formats.hf_pack import HF_PACK


class StoredFloats(torch.nn.Module):  # type: ignore[misc]
    """What torch.nn.Linear computes with the floats code * scale (N, K) in `dtype`, which each call makes anew.

    `packed` is uint8 (ceil(N/4), K) in Hugging Face's layout. `scale` has numbers that `dtype` holds: one, or one for
    each group of a row's weights, (N, K / group). Calls take an eighth of the memory of floats, and far more time.
    """

    bias: torch.Tensor | None

    def __init__(self, packed: torch.Tensor, scale: torch.Tensor, out_features: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.in_features, self.out_features, self.dtype = packed.shape[1], out_features, dtype
        self.register_buffer("packed", packed)
        self.register_buffer("scale", scale.float())
        self.bias = None

    @property
    def weight(self) -> torch.Tensor:
        """The floats (N, K)."""
        codes, _ = HF_PACK.unpack(self.packed.numpy(), (self.out_features, self.in_features), tail="error")
        floats = torch.from_numpy(codes).to(self.dtype)
        scale = self.scale.to(self.dtype)
        if scale.numel() == 1:
            return floats.mul_(scale)
        return floats.unflatten(1, (scale.shape[1], -1)).mul_(scale[:, :, None]).flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., K) to (..., N)."""
        found: torch.Tensor = torch.nn.functional.linear(x, self.weight, self.bias)
        return found
