"""BitLinear: a linear layer over packed ternary weights, as a module."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.absmean_quantize.api import absmean_quantize
from tritmark.kernels.formats.hf_pack import HF_PACK
from tritmark.kernels.packed import preferred_format
from tritmark.torch import cpu, cuda, ops  # noqa: F401, for what it registers
from tritmark.torch.direct import unseen

_DEVICES = {"cpu": cpu, "cuda": cuda}
"""What computes the ops on each kind of device."""
_RULES = ("multiply", "divide")
_BITS = (8, 16)
_HALVES = (torch.bfloat16, torch.float16)
_linear = torch.ops.tritmark.linear.default
_linear_forward = torch.ops.tritmark.linear_forward.default
_linear_constant = torch.ops.tritmark.linear_constant.default
_matmul_a16 = torch.ops.tritmark.ternary_matmul_a16.default
_matmul_a16_constant = torch.ops.tritmark.ternary_matmul_a16_constant.default


class BitLinear(torch.nn.Module):  # type: ignore[misc]
    """y = x @ W.T + bias with ternary weights W (N, K) and activations that are quantized to int8 at each call, or with
    `activation_bits` 16 are bfloat16 or float16 and stay what they are (W2A16).

    The state is that of BitNet models on Hugging Face (format hf_pack): `weight`, uint8 (ceil(N/4), K), `weight_scale`
    of shape (1,), and `bias` (N,) where there is one. `weight_scale_rule` says what the scale is: "multiply", what code
    1 stands for (`linear_class` autobitlinear, as bitnet-b1.58-2B-4T has it), or "divide", its inverse (bitlinear). The
    scale stays float32 whatever dtype the module is brought to.

    Kernels read another layout: `packed`, a buffer that is made from the weights, once for each device, when they are
    loaded or moved, and is no part of the state. Whoever writes into `weight` or `weight_scale` calls `repack`
    afterwards; into `packed` nobody writes, for a kernel may read it while launches before its own still run. Inputs
    are float32, bfloat16 or float16 (..., K), the output is of their dtype, under autocast of its dtype (inputs are not
    rounded to it). See torch.ops.tritmark.linear for the arithmetic and the gradient.

    With 16 bits inputs are bfloat16 or float16, under autocast they are brought to its dtype; see
    torch.ops.tritmark.ternary_matmul_a16. A bias is added in float32, and the sum rounded. The state is the same.
    """

    weight: torch.Tensor
    weight_scale: torch.Tensor
    packed: torch.Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        *,
        weight_scale_rule: str = "multiply",
        activation_bits: int = 8,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """All weights are zero, to be loaded. `dtype` is that of the bias. Raises InvalidArgumentError."""
        super().__init__()
        if activation_bits not in _BITS:
            raise _refuse("activation_bits", repr(activation_bits), " or ".join(map(str, _BITS)))
        if weight_scale_rule not in _RULES:
            raise _refuse("weight_scale_rule", repr(weight_scale_rule), " or ".join(map(repr, _RULES)))
        self.in_features, self.out_features = in_features, out_features
        self.weight_scale_rule, self.activation_bits = weight_scale_rule, activation_bits
        shape = HF_PACK.packed_shape(HF_PACK.check_shape("BitLinear", "features", (out_features, in_features)))
        self.register_buffer("weight", torch.empty(shape, dtype=torch.uint8, device=device))
        self.register_buffer("weight_scale", torch.ones(1, device=device, dtype=torch.float32))
        self.register_parameter(
            "bias", torch.nn.Parameter(torch.zeros(out_features, device=device, dtype=dtype)) if bias else None
        )
        self.register_buffer("packed", None, persistent=False)
        self._format, self._scale, self._kind = "", 0.0, ""
        self._constant = True
        if not self.weight.is_meta:
            zeros = HF_PACK.pack(np.zeros((out_features, in_features), np.int8), 1.0, tail="error")
            self.weight.copy_(torch.from_numpy(zeros))
        self.repack()

    @classmethod
    def from_float(cls, linear: torch.nn.Linear, *, activation_bits: int = 8) -> BitLinear:
        """The layer with its weights quantized by the absmean rule of BitNet b1.58, on its device, with a copy of its
        bias. Raises InvalidArgumentError for a NaN or infinity."""
        weights = linear.weight.detach()
        quantized = absmean_quantize(weights.float().cpu().contiguous().numpy())
        packed = torch.from_numpy(HF_PACK.pack(quantized.codes, quantized.scale, tail="error"))
        bias = None if linear.bias is None else linear.bias.detach().clone()
        return cls.from_packed(
            packed.to(weights.device),
            float(quantized.scale),
            bias,
            out_features=linear.out_features,
            activation_bits=activation_bits,
        )

    @classmethod
    def from_packed(
        cls,
        weight: torch.Tensor,
        weight_scale: torch.Tensor | float,
        bias: torch.Tensor | None = None,
        *,
        out_features: int | None = None,
        weight_scale_rule: str = "multiply",
        activation_bits: int = 8,
    ) -> BitLinear:
        """A layer of weights in Hugging Face's layout, uint8 (ceil(N/4), K), which it shares, with their scale.

        N is four times the rows unless told. Raises InvalidArgumentError where the bytes or the scale are none.
        """
        if not isinstance(weight, torch.Tensor) or weight.dtype is not torch.uint8 or weight.ndim != 2:
            found = f"{weight.dtype} {tuple(weight.shape)}" if isinstance(weight, torch.Tensor) else repr(type(weight))
            raise _refuse("weight", found, "a uint8 tensor (ceil(N/4), K)")
        N = 4 * weight.shape[0] if out_features is None else out_features
        if weight.shape[0] != -(-N // 4):
            raise _refuse("out_features", str(N), f"{4 * weight.shape[0] - 3} to {4 * weight.shape[0]}")
        made = cls(
            weight.shape[1], N, weight_scale_rule=weight_scale_rule, activation_bits=activation_bits, device="meta"
        )
        if bias is not None:
            if tuple(bias.shape) != (N,) or not bias.is_floating_point():
                raise _refuse("bias", f"{bias.dtype} {tuple(bias.shape)}", f"floating point ({N},)")
            made.bias = torch.nn.Parameter(bias)
        scale = torch.as_tensor(weight_scale, dtype=torch.float32, device=weight.device)
        if scale.numel() != 1:
            raise _refuse("weight_scale", f"of shape {tuple(scale.shape)}", "one number")
        made.weight, made.weight_scale = weight, scale.detach().reshape(1)
        made.repack()
        return made

    def repack(self) -> None:
        """Make `packed` anew. Waits for the device. Raises InvalidArgumentError where weights or scale are none."""
        device, shape = self.weight.device, (self.out_features, self.in_features)
        self.packed, self._format, self._scale, self._kind = None, "", 0.0, device.type
        if device.type not in _DEVICES:
            return
        scale = float(self.weight_scale)
        if not (math.isfinite(scale) and scale > 0):
            raise _refuse("weight_scale", repr(scale), "finite and above zero")
        scale = float(np.float32(1 / scale if self.weight_scale_rule == "divide" else scale))
        codes, _ = HF_PACK.unpack(self.weight.detach().cpu().contiguous().numpy(), shape, tail="error")
        format = preferred_format(device.type)
        packed = torch.ops.tritmark.pack(torch.from_numpy(codes), scale, format)
        self.packed, self._format, self._scale = packed.to(device), format, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., K) to (..., N). Raises InvalidArgumentError, and NoCompatibleKernelError for a device without
        kernels."""
        # nn.Module looks for attributes that are tensors in three dictionaries, which takes time at each call.
        packed, parameters = self._buffers["packed"], self._parameters
        bias = parameters["bias"] if parameters else self.bias  # DataParallel's replicas have no parameters
        shape = x.shape
        if not shape or shape[-1] != self.in_features:
            raise _refuse("x", f"of shape {tuple(shape)}", f"of shape (..., {self.in_features})")
        if packed is None:
            raise _refuse("weight", f"on {self.weight.device}, or not loaded", f"loaded, on {' or '.join(_DEVICES)}")
        kind = self._kind
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        if self.activation_bits == 16:
            return self._product_a16(x if dtype is None else x.to(dtype), packed, bias)
        if torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad)):
            compute = _linear
        elif not self._constant:
            compute = _linear_forward
        elif torch.compiler.is_compiling() or not unseen(kind, x, packed, bias):
            compute = _linear_constant
        else:
            compute = _DEVICES[kind].linear_constant
        found: torch.Tensor = compute(x, packed, self._scale, self.out_features, self._format, bias, dtype)
        return found

    def _product_a16(self, x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """The product without quantization of activations, and the bias."""
        if x.dtype not in _HALVES:
            raise _refuse("x", f"of dtype {x.dtype}", " or ".join(map(str, _HALVES)))
        wanted = x.dtype if bias is None else torch.float32
        if not self._constant or (torch.is_grad_enabled() and x.requires_grad):
            compute = _matmul_a16
        elif torch.compiler.is_compiling() or not unseen(self._kind, x, packed, None):
            compute = _matmul_a16_constant
        else:
            compute = _DEVICES[self._kind].ternary_matmul_a16_constant
        found: torch.Tensor = compute(x, packed, self._scale, self.out_features, self._format, wanted)
        return found if bias is None else (found + bias).to(x.dtype)

    def extra_repr(self) -> str:
        bits = "" if self.activation_bits == 8 else f", activation_bits={self.activation_bits}"
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}{bits}"

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> BitLinear:
        """Moves and casts, as nn.Module does for all of its kind."""
        before, scale, packed = self.weight, self.weight_scale, self.packed
        self.packed = None
        super()._apply(fn, recurse)
        if self.weight_scale.dtype != scale.dtype:
            self.weight_scale = scale.to(self.weight_scale.device)
        if self.weight.device == before.device:
            self.packed = packed
        elif before.is_meta:
            self._format, self._scale = "", 0.0  # memory of undefined content, to be loaded
        else:
            self.repack()
        return self

    def _replicate_for_data_parallel(self) -> BitLinear:
        made: BitLinear = super()._replicate_for_data_parallel()
        made._constant = False  # its `packed` is copied at each call
        return made

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *more: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *more)
        if f"{prefix}weight" in state_dict or f"{prefix}weight_scale" in state_dict:
            self.repack()

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without what the device reads, for they may be loaded on another."""
        state = self.__dict__.copy()
        state["_buffers"] = {**self._buffers, "packed": None}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.repack()


def _refuse(argument: str, found: str, legal: str) -> InvalidArgumentError:
    return InvalidArgumentError(op="BitLinear", argument=argument, found=found, legal=legal)
