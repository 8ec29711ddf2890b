"""BitExperts: the linear layers of all experts of a model, with packed ternary weights, as a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.absmean_quantize.api import absmean_quantize
from tritmark.kernels.formats.hf_pack import HF_PACK
from tritmark.torch import contract
from tritmark.torch.derived import forget
from tritmark.torch.experts import PackedExperts, packed_experts, refuse
from tritmark.torch.followed import DEVICES
from tritmark.torch.ops import OPS

_experts = OPS.bit_experts.default


def _shown(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(type(value))


class BitExperts(torch.nn.Module):  # type: ignore[misc]
    """y = x @ W[e].T with the ternary weights (N, K) of the experts e of each token, in one call for all. Activations
    are quantized to int8 in each call (W2A8), each token once.

    The state is `weight`, uint8 (E, ceil(N/4), K), the layout of BitNet models on Hugging Face for each expert, and
    `weight_scale`, float32 (E,), the value of code 1. With `group_size` each group of so many weights of a row has a
    scale, and `weight_scale` is (E, N, K / group_size); kernels read these as float16, and a scale that float16 does
    not hold exactly is refused. Scales stay float32 when the module changes dtype.

    Kernels read another layout, made at the first call, and again after the state was replaced, moved or written. Call
    `repack` after writes that PyTorch does not count (`.data`, NumPy, collectives).

    The output has the dtype of x, or autocast's. The gradient with respect to x is that of the product with dequantized
    weights; weights have none. Source: specification, 3.1, for layers with experts (arXiv:2101.03961).
    """

    weight: torch.Tensor
    weight_scale: torch.Tensor

    def __init__(
        self,
        num_experts: int,
        in_features: int,
        out_features: int,
        *,
        group_size: int | None = None,
        device: Any = None,
    ) -> None:
        """All weights are zero until they are loaded. Raises InvalidArgumentError."""
        super().__init__()
        self.num_experts, self.in_features, self.out_features = num_experts, in_features, out_features
        self.group_size = group_size
        if isinstance(num_experts, bool) or not isinstance(num_experts, int) or num_experts < 1:
            raise refuse("num_experts", repr(num_experts), "an integer of at least 1")
        shape = HF_PACK.packed_shape(HF_PACK.check_shape("BitExperts", "features", (out_features, in_features)))
        scales = torch.ones(self._scale_shape(), device=device, dtype=torch.float32)
        self.register_buffer("weight", torch.empty((num_experts, *shape), dtype=torch.uint8, device=device))
        self.register_buffer("weight_scale", scales)
        if not self.weight.is_meta:
            zeros = HF_PACK.pack(np.zeros((out_features, in_features), np.int8), 1.0, tail="error")
            self.weight.copy_(torch.from_numpy(zeros).expand(self.weight.shape))

    @classmethod
    def from_float(cls, weights: torch.Tensor) -> BitExperts:
        """Quantize float weights (E, N, K) by the absmean rule of BitNet b1.58, expert by expert, on their device.
        Raises InvalidArgumentError for a NaN or infinity."""
        if not isinstance(weights, torch.Tensor) or weights.ndim != 3 or not weights.is_floating_point():
            found = (
                f"{weights.dtype} {tuple(weights.shape)}" if isinstance(weights, torch.Tensor) else repr(type(weights))
            )
            raise refuse("weights", found, "a floating tensor (E, N, K)")
        packed, scales = [], []
        for expert in weights.detach():
            floats = expert.float().cpu().contiguous()
            try:
                quantized = absmean_quantize(floats.numpy())
            except InvalidArgumentError as error:
                raise contract.refuse_nonfinite("BitExperts.from_float", "weights", floats) or error from None
            packed.append(torch.from_numpy(HF_PACK.pack(quantized.codes, quantized.scale, tail="error")))
            scales.append(float(quantized.scale))
        device = weights.device
        return cls.from_packed(
            torch.stack(packed).to(device), torch.tensor(scales, device=device), out_features=weights.shape[1]
        )

    @classmethod
    def from_packed(
        cls, weight: torch.Tensor, weight_scale: torch.Tensor, *, out_features: int | None = None
    ) -> BitExperts:
        """Make a layer of weights in Hugging Face's layout, uint8 (E, ceil(N/4), K), and their scales, float32 (E,) or
        (E, N, K / group_size). The layer shares them. N is four times the rows by default. Raises
        InvalidArgumentError for invalid bytes or scales."""
        if not isinstance(weight, torch.Tensor) or weight.dtype is not torch.uint8 or weight.ndim != 3:
            raise refuse("weight", _shown(weight), "a uint8 tensor (E, ceil(N/4), K)")
        E, quarter, K = weight.shape
        N = 4 * quarter if out_features is None else out_features
        if quarter != -(-N // 4):
            raise refuse("out_features", str(N), f"{4 * quarter - 3} to {4 * quarter}")
        groups = weight_scale.shape[2] if weight_scale.ndim == 3 else 0
        group_size = K // groups if groups and not K % groups else None
        made = cls(E, K, N, group_size=group_size, device="meta")
        made.weight, made.weight_scale = weight, weight_scale.detach()
        if weight.device.type in DEVICES:
            packed_experts(made.weight, made.weight_scale, N)
        return made

    @property
    def packed(self) -> PackedExperts:
        """Weights and scales in the layout of the kernels; do not write them. Raises InvalidArgumentError for an
        invalid state."""
        return packed_experts(self.weight, self.weight_scale, self.out_features)

    def repack(self) -> None:
        """Read weights and scales again after writes that PyTorch does not count. Waits for the device. Raises
        InvalidArgumentError for an invalid state."""
        forget(self.weight)
        packed_experts(self.weight, self.weight_scale, self.out_features)

    def forward(self, x: torch.Tensor, experts: torch.Tensor, gates: torch.Tensor | None = None) -> torch.Tensor:
        """The products of each token with its experts, (..., k, N), or with `gates` (..., k) their weighted sum,
        (..., N).

        `experts` is int64 or int32 (..., k), the numbers of each token's experts, in any order. `x` is float32,
        bfloat16 or float16: (..., K), the same row for all experts of a token, or (..., k, K), a row for each. On the
        CPU an expert that does not exist is refused; on a GPU, where that would wait for the device, its row is
        undefined. Raises InvalidArgumentError, and NoCompatibleKernelError on a device without kernels.
        """
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        out: torch.Tensor = _experts(x, self.weight, self.weight_scale, experts, self.out_features, dtype)
        if gates is None:
            return out
        if gates.shape != experts.shape:
            raise refuse("gates", f"of shape {tuple(gates.shape)}", f"of shape {tuple(experts.shape)}, as experts")
        summed: torch.Tensor = torch.matmul(gates.to(out.dtype).unsqueeze(-2), out).squeeze(-2)
        return summed

    def extra_repr(self) -> str:
        group = "" if self.group_size is None else f", group_size={self.group_size}"
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"num_experts={self.num_experts}, {sizes}{group}"

    def _scale_shape(self) -> tuple[int, ...]:
        group = self.group_size
        if group is None:
            return (self.num_experts,)
        if isinstance(group, bool) or not isinstance(group, int) or group < 1 or self.in_features % group:
            raise refuse("group_size", repr(group), f"a divisor of in_features, {self.in_features}, or None")
        return self.num_experts, self.out_features, self.in_features // group

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> BitExperts:
        """Move or cast the state, as nn.Module does; scales keep their dtype."""
        scale = self.weight_scale
        super()._apply(fn, recurse)
        if self.weight_scale.dtype != scale.dtype:
            self.weight_scale = scale.to(self.weight_scale.device)
        return self
