"""Memory for outputs, without PyTorch's dispatcher, which takes most of an empty tensor's time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch


def allocator(kind: str) -> Callable[..., torch.Tensor]:
    """`empty_strided` of a shape, strides and a dtype on that kind of device, the current one of several: what
    torch.compile's own code calls, or the same through the dispatcher where PyTorch has it no more."""
    own = partial(_empty_strided, kind)
    found: Callable[..., torch.Tensor] = getattr(torch._C._dynamo.guards, f"_empty_strided_{kind}", own)
    return found


def _empty_strided(kind: str, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device=kind)
