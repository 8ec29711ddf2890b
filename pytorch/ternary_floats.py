"""Ternary weights that a checkpoint stores as floats: found by their values, never by rounding."""

from __future__ import annotations

from typing import NamedTuple

import torch

from tritmark.kernels.formats import FORMATS
from tritmark.kernels.formats.hf_pack import HF_PACK
from tritmark.kernels.formats.row16_grouped import FORMATS as GROUPED

GROUPS = tuple(sorted((form.group for form in GROUPED), reverse=True))
"""Sizes of groups that kernels take, the largest first: the fewest scales."""
_INTEGERS = {
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
"""Integers of the size of each dtype."""
_PART = (1 << 15) - 1
"""Weights that are read at a time on a CPU: in the caches, and too few for PyTorch to share out over threads."""


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
    integers = _INTEGERS.get(values.dtype)
    if integers is None:
        return f"its weights are {values.dtype}, not floats"
    E, N, K = values.shape
    whole = [_extremes(each, integers) for each in values]
    largest = torch.stack([most for most, _ in whole])
    if bool((largest >= _bits_of(float("inf"), values)).any()):
        return "its weights have a NaN or infinity"
    if all(one for _, one in whole):
        return torch.where(largest == 0, _bits_of(1.0, values), largest).view(values.dtype).float().reshape(-1, 1)
    for group in GROUPS:
        if K % group:
            continue
        found = [_extremes(each.reshape(-1, group), integers, rows=True) for each in values]
        if all(one for _, one in found):
            scales = torch.stack([most for most, _ in found]).reshape(E, N, K // group)
            return stored_scales(scales.view(values.dtype).float(), group)
    return f"its weights are not ternary: more than one magnitude in a group of {GROUPS[-1]}"


def _extremes(values: torch.Tensor, integers: torch.dtype, *, rows: bool = False) -> tuple[torch.Tensor, bool]:
    """The bits of the largest magnitude of (n, k), or of each of its `rows`, and whether all others are zero or equal
    to it. If some row has others, those behind it are not read.

    Bits of magnitudes are in the order of their values. With 1 subtracted, zero is the largest of all, so the least one
    is the least magnitude besides zero. Parts stay in the cache on a CPU.
    """
    mask = torch.iinfo(integers).max
    step = len(values) if values.is_cuda else max(1, _PART // max(1, values.shape[1]))
    most, one = [], True
    for part in values.split(max(1, step)):
        bits = part.view(integers) & mask
        largest = bits.amax(1) if rows else bits.max()
        bits.sub_(1).bitwise_and_(mask)
        least = bits.amin(1) if rows else bits.min()
        most.append(largest)
        one = one and bool(((largest == 0) | (least + 1 == largest)).all())
        if rows and not one:
            break
    found = torch.cat(most) if rows else torch.stack(most)
    if rows:
        return found, one
    top = found.max()
    return top, one and bool(((found == 0) | (found == top)).all())


def _bits_of(value: float, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(value, dtype=like.dtype, device=like.device).view(_INTEGERS[like.dtype])


def stored_scales(scales: torch.Tensor, group: int) -> torch.Tensor | str:
    """These scales, or that the kernels' format would round them."""
    stored = FORMATS[f"row16_g{group}"].scale_dtype
    if bool((scales.to(getattr(torch, stored)).float() != scales).any()):
        return f"the scales of its groups of {group} are no {stored}, in which kernels read them"
    return scales


def _packed(values: torch.Tensor) -> torch.Tensor:
    codes = torch.empty(values.shape, dtype=torch.int8, device=values.device)
    step = len(values) if values.is_cuda else max(1, _PART // values.shape[1])
    for part, made in zip(values.split(step), codes.split(step), strict=True):
        made.copy_(part.sign())
    codes = codes.cpu().numpy()
    return torch.from_numpy(HF_PACK.pack(codes, 1.0, tail="error")).to(values.device)
