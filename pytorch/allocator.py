"""Allocate outputs without PyTorch's dispatcher, which takes most of the time of `torch.empty`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch


def allocator(kind: str) -> Callable[..., torch.Tensor]:
    """`empty_strided(shape, strides, dtype)` for a device type, on the current device: the function that the generated
    code of torch.compile calls. A PyTorch without it gets the same through the dispatcher."""
    own = partial(_empty_strided, kind)
    found: Callable[..., torch.Tensor] = getattr(torch._C._dynamo.guards, f"_empty_strided_{kind}", own)
    return found


def _empty_strided(kind: str, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device=kind)
