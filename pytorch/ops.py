"""torch.ops.tritmark: schemas, what each device computes, shapes for torch.compile, and gradients.

Weights are bytes in one of tritmark's formats (`tritmark list formats`) of which the device has a kernel: on a GPU
"row16", on the CPU "tile64" and more. `weight_scale` is what code 1 stands for; 1 for formats with several scales in
their bytes. Activations are float32, bfloat16 or float16 of any shape (..., K). All of these raise
InvalidArgumentError for arguments outside of that, and NoCompatibleKernelError where no kernel fits.

- `activation_quantize(x) -> (codes, scale)`: int8 of x's shape, and float32 of that without its last axis: 127 over the
  largest magnitude of a row, by which the row was multiplied.
- `ternary_matmul(activations, weights, weight_scale, act_scale, N, format, out_dtype=torch.float32)`: int8 (..., K)
  times weights (N, K), exact in int32, times weight_scale / act_scale, rounded to float32, and from there to bfloat16
  or float16; or int32 (the accumulators).
- `linear(x, weights, weight_scale, N, format, bias=None, out_dtype=None)`: the two, one after the other, as in
  QuantizedLinear; in x's dtype unless `out_dtype` is another. With a bias the product is float32, the bias
  is added in float32, and the sum rounded. Its gradient with respect to x is that of the product with dequantized
  weights: the quantization of activations counts as the identity (straight-through). Weights have none.
- `linear_forward`: the same without a gradient, which costs less of the host.
- `linear_constant`: the same again, of weights that no launch that may still run on the GPU writes: kernels read them
  while launches before theirs end. What BitLinear calls where nothing needs a gradient.
- `ternary_matmul_a16(activations, weights, weight_scale, N, format, out_dtype=None)`: bfloat16 or float16 (..., K),
  not quantized, times weights (N, K) with one scale, times weight_scale (W2A16); sums are float32, the output is of the
  activations' dtype unless told. NaN and infinities go through. Its gradient with respect to the activations is that of
  the product with dequantized weights. On the CPU PyTorch computes it, from weights that are unpacked at each call.
- `ternary_matmul_a16_constant`: the same without a gradient, of weights as for `linear_constant`.
- `bit_linear(x, weight, weight_scale, N, divide=False, bias=None, out_dtype=None)`: `linear` of a layer's state as
  checkpoints have it: `weight` in Hugging Face's layout, uint8 (ceil(N/4), K), and the tensor of its scale, of one
  number, by whose inverse is multiplied with `divide`. What kernels read is made from the weights at the first call
  with them, and again once they were written. `bit_linear_forward`: the same without a gradient.
- `bit_linear_a16(activations, weight, weight_scale, N, divide=False, out_dtype=None)`: `ternary_matmul_a16` of such a
  state. `bit_linear_a16_forward`: the same without a gradient.
- `i2s_quantize(x, scale)`, `i2s_dequantize(q, scale)`: see the functions of that name in tritmark.kernels.
- `pack(codes, scale, format)`, `unpack(packed, N, K, format)`: ternary codes int8 (N, K) in a format with one scale,
  and back.

On the CPU a NaN or infinity in x, a scale that is none, a code other than -1, 0 and 1, and a field that stands for none
are InvalidArgumentError too. On a GPU values are not looked at, since that would wait for it: activations with a NaN or
infinity give a row of NaN, and the rest is as bad as what was given.
"""

from __future__ import annotations

from typing import Any

import torch

from tritmark.kernels import FORMATS
from tritmark.torch import contract, state
from tritmark.torch.followed import DEVICES

_LINEAR = (
    "(Tensor x, Tensor weights, float weight_scale, int N, str format, Tensor? bias=None, ScalarType? out_dtype=None)"
    " -> Tensor"
)
_A16 = (
    "(Tensor activations, Tensor weights, float weight_scale, int N, str format, ScalarType? out_dtype=None) -> Tensor"
)
SCHEMAS = {
    "activation_quantize": "(Tensor x) -> (Tensor, Tensor)",
    "ternary_matmul": "(Tensor activations, Tensor weights, float weight_scale, Tensor act_scale, int N, str format, "
    "ScalarType out_dtype=float) -> Tensor",
    "linear": _LINEAR,
    "linear_forward": _LINEAR,
    "linear_constant": _LINEAR,
    "ternary_matmul_a16": _A16,
    "ternary_matmul_a16_constant": _A16,
    **state.SCHEMAS,
    "i2s_quantize": "(Tensor x, float scale) -> Tensor",
    "i2s_dequantize": "(Tensor q, float scale) -> Tensor",
    "pack": "(Tensor codes, float scale, str format) -> Tensor",
    "unpack": "(Tensor packed, int N, int K, str format) -> Tensor",
}
"""Every op, with its schema."""


def _activation_quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape, dtype=torch.int8), x.new_empty(x.shape[:-1], dtype=torch.float32)


def _ternary_matmul(
    activations: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: float,
    act_scale: torch.Tensor,
    N: int,
    format: str,
    out_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    return activations.new_empty((*activations.shape[:-1], N), dtype=out_dtype)


def _linear(
    x: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: float,
    N: int,
    format: str,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], N), dtype=out_dtype or x.dtype)


def _ternary_matmul_a16(
    activations: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: float,
    N: int,
    format: str,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    return activations.new_empty((*activations.shape[:-1], N), dtype=out_dtype or activations.dtype)


def _i2s_quantize(x: torch.Tensor, scale: float) -> torch.Tensor:
    return x.new_empty(x.shape, dtype=torch.int8)


def _i2s_dequantize(q: torch.Tensor, scale: float) -> torch.Tensor:
    return q.new_empty(q.shape, dtype=torch.float32)


def _pack(codes: torch.Tensor, scale: float, format: str) -> torch.Tensor:
    N, K = codes.shape
    form = contract.check_codes(codes, scale, format)
    return codes.new_empty(form.packed_shape((N, K)), dtype=torch.uint8)


def _unpack(packed: torch.Tensor, N: int, K: int, format: str) -> torch.Tensor:
    return packed.new_empty((N, K), dtype=torch.int8)


_SHAPES = {
    "activation_quantize": _activation_quantize,
    "ternary_matmul": _ternary_matmul,
    "linear": _linear,
    "linear_forward": _linear,
    "linear_constant": _linear,
    "ternary_matmul_a16": _ternary_matmul_a16,
    "ternary_matmul_a16_constant": _ternary_matmul_a16,
    "bit_linear": state.linear_shape,
    "bit_linear_forward": state.linear_shape,
    "bit_linear_a16": state.a16_shape,
    "bit_linear_a16_forward": state.a16_shape,
    "i2s_quantize": _i2s_quantize,
    "i2s_dequantize": _i2s_dequantize,
    "pack": _pack,
    "unpack": _unpack,
}


def _kept_for_gradient(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weights, weight_scale, N, format, bias, _ = inputs
    ctx.save_for_backward(weights)
    ctx.product = weight_scale, N, x.shape[-1], format
    ctx.dtypes = x.dtype, None if bias is None else bias.dtype


def _gradient(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Of linear, with respect to x and bias."""
    (weights,), (weight_scale, N, K, format), (x_dtype, bias_dtype) = ctx.saved_tensors, ctx.product, ctx.dtypes
    of_x = of_bias = None
    if ctx.needs_input_grad[0]:
        form = FORMATS[format]
        if form.scale_per != "tensor":
            raise contract.refuse("linear", "format", f"{format}, which has {form.scales}", "one scale, for a gradient")
        codes = torch.ops.tritmark.unpack(weights, N, K, format)
        of_x = (upstream @ codes.to(upstream.dtype) * weight_scale).to(x_dtype)
    if bias_dtype is not None and ctx.needs_input_grad[5]:
        of_bias = upstream.reshape(-1, N).sum(0).to(bias_dtype)
    return of_x, None, None, None, None, of_bias, None


def _kept_for_a16(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    activations, weights, weight_scale, N, format, _ = inputs
    ctx.save_for_backward(weights)
    ctx.product = weight_scale, N, activations.shape[-1], format
    ctx.dtype = activations.dtype


def _gradient_a16(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Of ternary_matmul_a16, with respect to the activations."""
    (weights,), (weight_scale, N, K, format) = ctx.saved_tensors, ctx.product
    codes = torch.ops.tritmark.unpack(weights, N, K, format)
    found = (upstream @ codes.to(upstream.dtype) * weight_scale).to(ctx.dtype)
    return found, None, None, None, None, None


_GRADIENTS = (
    ("linear", _kept_for_gradient, _gradient),
    ("ternary_matmul_a16", _kept_for_a16, _gradient_a16),
    ("bit_linear", state.keep_linear, state.linear_gradient),
    ("bit_linear_a16", state.keep_a16, state.a16_gradient),
)
"""Ops that have one: what is kept for it, and the gradient."""


def _registered() -> torch.library.Library:
    """The library with every op."""
    library = torch.library.Library("tritmark", "DEF")
    for name, schema in SCHEMAS.items():
        library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        for kind, device in DEVICES.items():
            compute = state.computes(name, kind) if name in state.SCHEMAS else getattr(device, name)
            library.impl(name, compute, kind.upper())
        torch.library.register_fake(f"tritmark::{name}", _SHAPES[name], lib=library)
    for name, keep, gradient in _GRADIENTS:
        torch.library.register_autograd(f"tritmark::{name}", gradient, setup_context=keep, lib=library)
    return library


_LIBRARY = _registered()
"""Kept, for the ops go with it."""
OPS: Any = torch.ops.tritmark
"""The ops, for what imports them from here, so that they are there."""
