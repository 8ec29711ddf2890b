"""Ternary weights that a checkpoint stores as floats: found by their values, never by rounding."""

from __future__ import annotations

from typing import NamedTuple

import torch

from tritmark.kernels.formats import FORMATS
from tritmark.kernels.formats.hf_pack import HF_PACK
from tritmark.kernels.formats.row16_grouped import FORMATS as GROUPED

GROUPS = tuple(sorted((form.group for form in GROUPED), reverse=True))
"""Sizes of groups that kernels take, the largest first: the fewest scales."""


class TernaryFloats(NamedTuple):
    """Weights (N, K) that are code * scale exactly."""

    packed: torch.Tensor
    """uint8 (ceil(N/4), K), in Hugging Face's layout, on the device of the weights."""
    scale: torch.Tensor
    """float32 (1,), or (N, K / group): the value of code 1."""


def ternary_of(weight: torch.Tensor) -> TernaryFloats | str:
    """The codes and scales of float weights (N, K) that have one magnitude besides zero, in the whole matrix or in each
    group of a row; otherwise the reason why there are none."""
    values = weight.detach()
    if not values.is_floating_point():
        return f"its weights are {values.dtype}, not floats"
    if not bool(torch.isfinite(values).all()):
        return "its weights have a NaN or infinity"
    magnitudes = values.abs()
    largest = magnitudes.amax()
    if not bool(largest):
        return TernaryFloats(_packed(values), torch.ones(1, device=values.device))
    if _one_magnitude(magnitudes, largest):
        return TernaryFloats(_packed(values), largest.float().reshape(1))
    N, K = values.shape
    for group in GROUPS:
        if K % group:
            continue
        parts = magnitudes.reshape(N, K // group, group)
        scales = parts.amax(-1)
        if _one_magnitude(parts, scales.unsqueeze(-1)):
            return _grouped(values, scales.float(), group)
    return f"its weights are not ternary: more than one magnitude in a group of {GROUPS[-1]}"


def _one_magnitude(magnitudes: torch.Tensor, largest: torch.Tensor) -> bool:
    return bool(((magnitudes == 0) | (magnitudes == largest)).all())


def _grouped(values: torch.Tensor, scales: torch.Tensor, group: int) -> TernaryFloats | str:
    stored = next(form.scale_dtype for form in FORMATS.values() if form.name == f"row16_g{group}")
    if bool((scales.to(getattr(torch, stored)).float() != scales).any()):
        return f"the scales of its groups of {group} are no {stored}, in which kernels read them"
    return TernaryFloats(_packed(values), scales)


def _packed(values: torch.Tensor) -> torch.Tensor:
    codes = values.sign().to(torch.int8).cpu().contiguous().numpy()
    return torch.from_numpy(HF_PACK.pack(codes, 1.0, tail="error")).to(values.device)
