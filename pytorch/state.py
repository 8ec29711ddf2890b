"""Ops on a layer's state as in checkpoints: weights in Hugging Face's layout, and a tensor with their scale, or with
one for each group of a row's weights.

torch.compile and torch.export put these ops into graphs, so they compute from the state that they receive.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from tritmark.torch import recovering
from tritmark.torch.derived import check_width, of_state
from tritmark.torch.followed import BY_WEIGHT, DEVICES, Followed

_LINEAR = (
    "(Tensor x, Tensor weight, Tensor weight_scale, int N, bool divide=False, Tensor? bias=None,"
    " ScalarType? out_dtype=None) -> Tensor"
)
_A16 = (
    "(Tensor activations, Tensor weight, Tensor weight_scale, int N, bool divide=False, ScalarType? out_dtype=None)"
    " -> Tensor"
)
SCHEMAS = {
    "bit_linear": _LINEAR,
    "bit_linear_forward": _LINEAR,
    recovering.NAME: _LINEAR,
    "bit_linear_a16": _A16,
    "bit_linear_a16_forward": _A16,
}
"""Schema of every op on a state."""


def computes(name: str, kind: str) -> Callable[..., torch.Tensor]:
    """The implementation of an op on a device type."""
    if name == recovering.NAME:
        return recovering.computes(kind)
    return (_a16 if "a16" in name else _linear)(DEVICES[kind])


def _linear(device: ModuleType) -> Callable[..., torch.Tensor]:
    compute: Callable[..., torch.Tensor] = device.linear_constant

    def bit_linear(
        x: torch.Tensor,
        weight: torch.Tensor,
        weight_scale: torch.Tensor,
        N: int,
        divide: bool = False,
        bias: torch.Tensor | None = None,
        out_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        # Few Python calls: each costs several times as much in a compiled graph.
        known = BY_WEIGHT.get(id(weight))
        held: Followed | None = None if known is None else known()
        if held is not None and held.divide is divide and held.N == N and held.holds(weight, weight_scale):
            packed, format, _ = held.derived
            if x.shape[-1:] == weight.shape[1:]:
                return compute(x, packed, held.factor, N, format, bias, out_dtype, held.weights_mark)
        made, factor = of_state(weight, weight_scale, N, divide)
        check_width(x, weight)
        mark = device.weights_mark(made.packed)
        return compute(x, made.packed, factor, N, made.format, bias, out_dtype, mark)

    return bit_linear


def _a16(device: ModuleType) -> Callable[..., torch.Tensor]:
    compute: Callable[..., torch.Tensor] = device.ternary_matmul_a16_constant

    def bit_linear_a16(
        activations: torch.Tensor,
        weight: torch.Tensor,
        weight_scale: torch.Tensor,
        N: int,
        divide: bool = False,
        out_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        made, factor = of_state(weight, weight_scale, N, divide)
        check_width(activations, weight)
        return compute(activations, made.packed, factor, N, made.format, out_dtype)

    return bit_linear_a16


def linear_shape(
    x: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    N: int,
    divide: bool = False,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The output of bit_linear without its values."""
    return x.new_empty((*x.shape[:-1], N), dtype=out_dtype or x.dtype)


def a16_shape(
    activations: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    N: int,
    divide: bool = False,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The output of bit_linear_a16 without its values."""
    return activations.new_empty((*activations.shape[:-1], N), dtype=out_dtype or activations.dtype)


def _dequantized(ctx: Any, upstream: torch.Tensor) -> torch.Tensor:
    """The upstream gradient times the weights, in plain operations that compilers can trace."""
    weight, weight_scale = ctx.saved_tensors
    N, divide = ctx.product
    fields = torch.cat([(weight >> shift) & 3 for shift in (0, 2, 4, 6)])[:N]
    codes, scale = fields.to(upstream.dtype) - 1, weight_scale.float()
    scale = scale.reciprocal() if divide else scale
    if scale.numel() == 1:
        return upstream @ codes * scale
    of_columns = scale.repeat_interleave(codes.shape[1] // scale.shape[1], dim=1)
    return upstream @ (codes * of_columns).to(upstream.dtype)


def keep_linear(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Save the inputs that bit_linear's gradient needs."""
    x, weight, weight_scale, N, divide, bias, _ = inputs
    ctx.save_for_backward(weight, weight_scale)
    ctx.product = N, divide
    ctx.dtypes = x.dtype, None if bias is None else bias.dtype


def linear_gradient(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Gradient of bit_linear with respect to x and bias."""
    x_dtype, bias_dtype = ctx.dtypes
    of_x = _dequantized(ctx, upstream).to(x_dtype) if ctx.needs_input_grad[0] else None
    of_bias = None
    if bias_dtype is not None and ctx.needs_input_grad[5]:
        of_bias = upstream.reshape(-1, ctx.product[0]).sum(0).to(bias_dtype)
    return of_x, None, None, None, None, of_bias, None


def keep_a16(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Save the inputs that bit_linear_a16's gradient needs."""
    activations, weight, weight_scale, N, divide, _ = inputs
    ctx.save_for_backward(weight, weight_scale)
    ctx.product = N, divide
    ctx.dtype = activations.dtype


def a16_gradient(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Gradient of bit_linear_a16 with respect to the activations."""
    return _dequantized(ctx, upstream).to(ctx.dtype), None, None, None, None, None
