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
    scale = _scales(values.unsqueeze(0))
    return scale if isinstance(scale, str) else TernaryFloats(_packed(values), scale.squeeze(0))


def ternary_experts_of(weights: torch.Tensor) -> TernaryFloats | str:
    """As ternary_of for weights (E, N, K), with one scale for each expert: uint8 (E, ceil(N/4), K) and float32 (E,), or
    (E, N, K / group) if the rows of an expert have groups."""
    values = weights.detach()
    scale = _scales(values)
    if isinstance(scale, str):
        return scale
    return TernaryFloats(
        torch.stack([_packed(each) for each in values]), scale.squeeze(-1) if scale.ndim == 2 else scale
    )


def _scales(values: torch.Tensor) -> torch.Tensor | str:
    """The value of code 1 of matrices (E, N, K): float32 (E, 1), or (E, N, K / group); or why there is none."""
    if not values.is_floating_point():
        return f"its weights are {values.dtype}, not floats"
    if not bool(torch.isfinite(values).all()):
        return "its weights have a NaN or infinity"
    magnitudes = values.abs()
    largest = magnitudes.amax((1, 2))
    if _one_magnitude(magnitudes, largest.reshape(-1, 1, 1)):
        return torch.where(largest == 0, 1, largest).float().reshape(-1, 1)
    E, N, K = values.shape
    for group in GROUPS:
        if K % group:
            continue
        parts = magnitudes.reshape(E, N, K // group, group)
        scales = parts.amax(-1)
        if _one_magnitude(parts, scales.unsqueeze(-1)):
            return _stored(scales.float(), group)
    return f"its weights are not ternary: more than one magnitude in a group of {GROUPS[-1]}"


def _one_magnitude(magnitudes: torch.Tensor, largest: torch.Tensor) -> bool:
    return bool(((magnitudes == 0) | (magnitudes == largest)).all())


def _stored(scales: torch.Tensor, group: int) -> torch.Tensor | str:
    """These scales, or that the kernels' format would round them."""
    stored = FORMATS[f"row16_g{group}"].scale_dtype
    if bool((scales.to(getattr(torch, stored)).float() != scales).any()):
        return f"the scales of its groups of {group} are no {stored}, in which kernels read them"
    return scales


def _packed(values: torch.Tensor) -> torch.Tensor:
    codes = values.sign().to(torch.int8).cpu().contiguous().numpy()
    return torch.from_numpy(HF_PACK.pack(codes, 1.0, tail="error")).to(values.device)
