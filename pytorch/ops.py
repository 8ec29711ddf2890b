"""torch.ops.tritmark: schemas, implementations per device, shapes for torch.compile, and gradients.

Weights are bytes in a format (`tritmark list formats`) for which the device has a kernel: "row16" on a GPU, "tile64"
and others on the CPU. `weight_scale` is the value of code 1; it is 1 for formats with several scales in their bytes.
Activations are float32, bfloat16 or float16 of any shape (..., K). All ops raise InvalidArgumentError for other
arguments, and NoCompatibleKernelError if no kernel fits.

- `activation_quantize(x) -> (codes, scale)`: int8 in x's shape, and float32 in that shape without the last axis. The
  scale is 127 over the largest magnitude of a row; the row is multiplied by it.
- `ternary_matmul(activations, weights, weight_scale, act_scale, N, format, out_dtype=torch.float32)`: int8 (..., K)
  times weights (N, K), exact in int32. The product with weight_scale / act_scale is rounded to float32, and then to
  bfloat16 or float16. int32 returns the accumulators.
- `linear(x, weights, weight_scale, N, format, bias=None, out_dtype=None)`: both in sequence, as in QuantizedLinear. The
  output has x's dtype by default. A bias is added in float32 to a float32 product, and the sum is rounded. The gradient
  with respect to x is that of the product with dequantized weights; the quantization of activations counts as the
  identity (straight-through). Weights have no gradient.
- `linear_forward`: the same without a gradient, with less host time.
- `linear_constant`: like linear_forward, for weights that no pending launch on the GPU writes. Kernels read them before
  earlier launches end. BitLinear calls it if no gradient is needed.
- `ternary_matmul_a16(activations, weights, weight_scale, N, format, out_dtype=None)`: bfloat16 or float16 (..., K), not
  quantized, times weights (N, K) with one scale or one for each group, times weight_scale (W2A16). Sums are float32.
  The output has the dtype of the activations by default. NaN and infinities propagate. The gradient with respect to the
  activations is that of the product with dequantized weights. On the CPU PyTorch computes it from weights that each
  call unpacks.
- `ternary_matmul_a16_constant`: the same without a gradient, for weights as in `linear_constant`.
- `bit_linear(x, weight, weight_scale, N, divide=False, bias=None, out_dtype=None)`: `linear` with the state of a
  checkpoint: `weight` in Hugging Face's layout, uint8 (ceil(N/4), K), and a tensor with one scale, or with one for each
  group of a row's weights, (N, K / group). Scales are inverted with `divide`. The kernels' layout is made at the first
  call with the weights, and again after they were written.
  `bit_linear_forward`: the same without a gradient.
- `bit_linear_recovering`: `bit_linear` on CPU tensors in a worker process, which survives failures of kernels. No other
  op recovers. BitLinear calls it with on_error="recover".
- `bit_linear_a16(activations, weight, weight_scale, N, divide=False, out_dtype=None)`: `ternary_matmul_a16` with such a
  state. `bit_linear_a16_forward`: the same without a gradient.
- `ternary_matmul_experts(activations, weights, weight_scale, act_scale, offsets, N, format, out_dtype=torch.float32)`:
  int8 (M, K), rows sorted by expert, times the weights of each row's expert, uint8 (E, bytes), in one call. Rows
  offsets[e] to offsets[e + 1] belong to expert e; offsets are int32 (E + 1,), scales float32 (E,) and (M,). Other
  arguments are those of ternary_matmul. On a GPU offsets outside the contract give undefined results.
- `bit_experts(x, weight, weight_scale, experts, N, out_dtype=None)`: quantizes x, and multiplies each token's row with
  the weights of its experts, with the state of BitExperts. The gradient is that of the product with dequantized
  weights; `bit_experts_gradient` computes it.
- `hadamard_quantize(x, signs, block_size) -> (codes, scale)`: `activation_quantize` of the rotated rows, for models
  whose weights are stored as W * S * H. `signs` is int8 (K,) of -1 and 1, or None for none.
- `hadamard_transform(x, signs, block_size, inverse=False, out_dtype=None)`: the rotated rows as floats, by default in
  x's dtype. `inverse` multiplies by the matrix first and then by the signs. The gradient is the other direction.
- `i2s_quantize(x, scale)`, `i2s_dequantize(q, scale)`: see the functions of that name in tritmark.kernels.
- `pack(codes, scale, format)`, `unpack(packed, N, K, format)`: ternary codes int8 (N, K) to a format with one scale,
  and back.

On the CPU these also raise InvalidArgumentError: a NaN or infinity in x, an invalid scale, a code except -1, 0 and 1,
and a bit field that is no code. On a GPU values are not checked, because that would wait for the device. Activations
with a NaN or infinity give a row of NaN; other invalid values give undefined results.
"""

from __future__ import annotations

from typing import Any

import torch

from tritmark.kernels import FORMATS
from tritmark.torch import contract, experts, recovering, state
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
    "ternary_matmul_experts": "(Tensor activations, Tensor weights, Tensor weight_scale, Tensor act_scale, "
    "Tensor offsets, int N, str format, ScalarType out_dtype=float) -> Tensor",
    **state.SCHEMAS,
    **experts.SCHEMAS,
    "hadamard_quantize": "(Tensor x, Tensor? signs, int block_size) -> (Tensor, Tensor)",
    "hadamard_transform": "(Tensor x, Tensor? signs, int block_size, bool inverse=False, ScalarType? out_dtype=None)"
    " -> Tensor",
    "i2s_quantize": "(Tensor x, float scale) -> Tensor",
    "i2s_dequantize": "(Tensor q, float scale) -> Tensor",
    "pack": "(Tensor codes, float scale, str format) -> Tensor",
    "unpack": "(Tensor packed, int N, int K, str format) -> Tensor",
}
"""Schema of every op."""


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


def _ternary_matmul_experts(
    activations: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: torch.Tensor,
    act_scale: torch.Tensor,
    offsets: torch.Tensor,
    N: int,
    format: str,
    out_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    return activations.new_empty((activations.shape[0], N), dtype=out_dtype)


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


def _hadamard_quantize(
    x: torch.Tensor, signs: torch.Tensor | None, block_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    return _activation_quantize(x)


def _hadamard_transform(
    x: torch.Tensor,
    signs: torch.Tensor | None,
    block_size: int,
    inverse: bool = False,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    return x.new_empty(x.shape, dtype=out_dtype or x.dtype)


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
    "ternary_matmul_experts": _ternary_matmul_experts,
    "bit_experts": experts.shape,
    "bit_experts_gradient": experts.gradient_shape,
    "bit_linear": state.linear_shape,
    "bit_linear_forward": state.linear_shape,
    recovering.NAME: state.linear_shape,
    "bit_linear_a16": state.a16_shape,
    "bit_linear_a16_forward": state.a16_shape,
    "hadamard_quantize": _hadamard_quantize,
    "hadamard_transform": _hadamard_transform,
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
    """Gradient of linear with respect to x and bias."""
    (weights,), (weight_scale, N, K, format), (x_dtype, bias_dtype) = ctx.saved_tensors, ctx.product, ctx.dtypes
    of_x = of_bias = None
    if ctx.needs_input_grad[0]:
        codes = _codes("linear", weights, N, K, format)
        of_x = (upstream @ codes.to(upstream.dtype) * weight_scale).to(x_dtype)
    if bias_dtype is not None and ctx.needs_input_grad[5]:
        of_bias = upstream.reshape(-1, N).sum(0).to(bias_dtype)
    return of_x, None, None, None, None, of_bias, None


def _codes(op: str, weights: torch.Tensor, N: int, K: int, format: str) -> torch.Tensor:
    """The codes, for a gradient. Raises InvalidArgumentError for formats with several scales."""
    form = FORMATS[format]
    if form.scale_per != "tensor":
        raise contract.refuse(op, "format", f"{format}, which has {form.scales}", "one scale, for a gradient")
    codes: torch.Tensor = torch.ops.tritmark.unpack(weights, N, K, format)
    return codes


def _kept_for_a16(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    activations, weights, weight_scale, N, format, _ = inputs
    ctx.save_for_backward(weights)
    ctx.product = weight_scale, N, activations.shape[-1], format
    ctx.dtype = activations.dtype


def _gradient_a16(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Gradient of ternary_matmul_a16 with respect to the activations."""
    (weights,), (weight_scale, N, K, format) = ctx.saved_tensors, ctx.product
    codes = _codes("ternary_matmul_a16", weights, N, K, format)
    found = (upstream @ codes.to(upstream.dtype) * weight_scale).to(ctx.dtype)
    return found, None, None, None, None, None


def _kept_for_hadamard(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, signs, block_size, inverse, _ = inputs
    ctx.save_for_backward(*(() if signs is None else (signs,)))
    ctx.rotation = block_size, not inverse, x.dtype


def _gradient_hadamard(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Gradient of hadamard_transform with respect to x: the transpose, since the matrix is symmetric."""
    block_size, inverse, dtype = ctx.rotation
    signs = ctx.saved_tensors[0] if ctx.saved_tensors else None
    found = torch.ops.tritmark.hadamard_transform(upstream, signs, block_size, inverse, dtype)
    return found, None, None, None, None


_GRADIENTS = (
    ("hadamard_transform", _kept_for_hadamard, _gradient_hadamard),
    ("linear", _kept_for_gradient, _gradient),
    ("ternary_matmul_a16", _kept_for_a16, _gradient_a16),
    ("bit_linear", state.keep_linear, state.linear_gradient),
    ("bit_experts", experts.keep, experts.gradient),
    (recovering.NAME, state.keep_linear, state.linear_gradient),
    ("bit_linear_a16", state.keep_a16, state.a16_gradient),
)
"""Ops with a gradient: the function that saves its inputs, and the gradient."""


def _registered() -> torch.library.Library:
    """Register every op in a new library."""
    library = torch.library.Library("tritmark", "DEF")
    for name, schema in SCHEMAS.items():
        library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        for kind, device in DEVICES.items():
            of_state = next((each for each in (state, experts) if name in each.SCHEMAS), None)
            compute = getattr(device, name) if of_state is None else of_state.computes(name, kind)
            library.impl(name, compute, kind.upper())
        torch.library.register_fake(f"tritmark::{name}", _SHAPES[name], lib=library)
    for name, keep, gradient in _GRADIENTS:
        torch.library.register_autograd(f"tritmark::{name}", gradient, setup_context=keep, lib=library)
    return library


_LIBRARY = _registered()
"""Kept, because the ops are removed with it."""
OPS: Any = torch.ops.tritmark
"""The ops; importing them from here ensures that they are registered."""
