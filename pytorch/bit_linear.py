"""BitLinear: a linear layer over packed ternary weights, as a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from tritmark.kernels.absmean_quantize.api import absmean_quantize
from tritmark.kernels.formats.hf_pack import HF_PACK
from tritmark.torch import contract
from tritmark.torch.derived import Derived, forget, refuse
from tritmark.torch.direct import unseen
from tritmark.torch.followed import DEVICES, Followed
from tritmark.torch.ops import OPS

_RULES = ("multiply", "divide")
_BITS = (8, 16)
_STATE = ("weight", "weight_scale")
_linear = OPS.bit_linear.default
_linear_forward = OPS.bit_linear_forward.default
_a16 = OPS.bit_linear_a16.default
_a16_forward = OPS.bit_linear_a16_forward.default
_Mark = tuple[int, int | None, int]


class BitLinear(torch.nn.Module):  # type: ignore[misc]
    """y = x @ W.T + bias with ternary weights W (N, K) and activations that are quantized to int8 at each call, or with
    `activation_bits` 16 are bfloat16 or float16 and stay what they are (W2A16).

    The state is that of BitNet models on Hugging Face (format hf_pack): `weight`, uint8 (ceil(N/4), K), `weight_scale`
    of shape (1,), and `bias` (N,) where there is one. `weight_scale_rule` says what the scale is: "multiply", what code
    1 stands for (`linear_class` autobitlinear, as bitnet-b1.58-2B-4T has it), or "divide", its inverse (bitlinear). The
    scale stays float32 whatever dtype the module is brought to.

    Kernels read another layout: `packed`, which is made from the weights at the first call and again once `weight` or
    `weight_scale` are other tensors, lie in other memory or were written; a state that is none is refused. Writes that
    PyTorch does not count (`.data`, NumPy, collectives) need `repack`; on the CPU most of them are found without.
    Weights of inference mode, where no writes are counted, are copied into a buffer whose are. Inputs are float32,
    bfloat16 or float16 (..., K), the output is of their dtype, under autocast of its dtype (inputs are not rounded to
    it). See torch.ops.tritmark.linear for the arithmetic and the gradient.

    With 16 bits inputs are bfloat16 or float16, under autocast they are brought to its dtype; see
    torch.ops.tritmark.ternary_matmul_a16. A bias is added in float32, and the sum rounded. The state is the same.
    """

    weight: torch.Tensor
    weight_scale: torch.Tensor
    _origin: tuple[Derived, float] | None = None
    """Of a replica of DataParallel: what the layer computes from."""

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
            raise refuse("activation_bits", repr(activation_bits), " or ".join(map(str, _BITS)))
        if weight_scale_rule not in _RULES:
            raise refuse("weight_scale_rule", repr(weight_scale_rule), " or ".join(map(repr, _RULES)))
        self.in_features, self.out_features = in_features, out_features
        self.weight_scale_rule, self.activation_bits = weight_scale_rule, activation_bits
        shape = HF_PACK.packed_shape(HF_PACK.check_shape("BitLinear", "features", (out_features, in_features)))
        self.register_buffer("weight", torch.empty(shape, dtype=torch.uint8, device=device))
        self.register_buffer("weight_scale", torch.ones(1, device=device, dtype=torch.float32))
        self.register_parameter(
            "bias", torch.nn.Parameter(torch.zeros(out_features, device=device, dtype=dtype)) if bias else None
        )
        self._followed: Followed | None = None
        self._unloaded: dict[str, _Mark] = {}
        if not self.weight.is_meta:
            zeros = HF_PACK.pack(np.zeros((out_features, in_features), np.int8), 1.0, tail="error")
            self.weight.copy_(torch.from_numpy(zeros))

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
            raise refuse("weight", found, "a uint8 tensor (ceil(N/4), K)")
        N = 4 * weight.shape[0] if out_features is None else out_features
        if weight.shape[0] != -(-N // 4):
            raise refuse("out_features", str(N), f"{4 * weight.shape[0] - 3} to {4 * weight.shape[0]}")
        made = cls(
            weight.shape[1], N, weight_scale_rule=weight_scale_rule, activation_bits=activation_bits, device="meta"
        )
        if bias is not None:
            if tuple(bias.shape) != (N,) or not bias.is_floating_point():
                raise refuse("bias", f"{bias.dtype} {tuple(bias.shape)}", f"floating point ({N},)")
            made.bias = torch.nn.Parameter(bias)
        scale = torch.as_tensor(weight_scale, dtype=torch.float32, device=weight.device)
        if scale.numel() != 1:
            raise refuse("weight_scale", f"of shape {tuple(scale.shape)}", "one number")
        made.weight, made.weight_scale = weight, scale.detach().reshape(1)
        if weight.device.type in DEVICES:
            made._follow(made.weight, made.weight_scale)
        return made

    @property
    def packed(self) -> torch.Tensor | None:
        """The weights as the kernels of their device read them, which no one writes. None where they are not loaded, or
        on a device without kernels. Raises InvalidArgumentError for a state that is none."""
        weight, scale = self.weight, self.weight_scale
        if weight.device.type not in DEVICES or self._still_unloaded(weight, scale):
            return None
        return self._follow(weight, scale).derived.packed

    def repack(self) -> None:
        """Read weights and scale anew: after writes that PyTorch does not count. Waits for the device. Raises
        InvalidArgumentError where weights or scale are none."""
        self._followed = None
        self._unloaded.clear()
        weight, scale = self.weight, self.weight_scale
        if weight.device.type in DEVICES:
            forget(weight)
            forget(scale)
            self._follow(weight, scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., K) to (..., N). Raises InvalidArgumentError, and NoCompatibleKernelError for a device without
        kernels."""
        # nn.Module looks for attributes that are tensors in three dictionaries, which takes time at each call.
        buffers, parameters = self._buffers, self._parameters
        weight, scale = buffers.get("weight"), buffers.get("weight_scale")
        if weight is None or scale is None:  # where they are parameters, or parametrized
            weight, scale = self.weight, self.weight_scale
        bias = parameters["bias"] if parameters else self.bias  # DataParallel's replicas have no parameters
        shape = x.shape
        if not shape or shape[-1] != self.in_features:
            raise refuse("x", f"of shape {tuple(shape)}", f"of shape (..., {self.in_features})")
        if torch.compiler.is_compiling():
            return self._dispatched(x, weight, scale, bias)
        held = self._followed
        if held is None or not held.holds(weight, scale):
            if self._origin is not None:
                return self._replicated(x, weight, bias, *self._origin)
            kind = weight.device.type
            if kind not in DEVICES or self._still_unloaded(weight, scale):
                raise refuse("weight", f"on {weight.device}, or not loaded", f"loaded, on {' or '.join(DEVICES)}")
            self._check(weight, scale)
            held = None
        else:
            kind = held.kind
        needed = torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad))
        if needed or not unseen(kind, x, weight, bias):
            return self._dispatched(x, weight, scale, bias)
        if held is None:
            held = self._follow(weight, scale)
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        packed, format, _ = held.derived
        if self.activation_bits == 16:
            x, wanted = self._halves(x if dtype is None else x.to(dtype), bias)
            product = DEVICES[kind].ternary_matmul_a16_constant(
                x, packed, held.factor, self.out_features, format, wanted
            )
            return product if bias is None else (product + bias).to(x.dtype)
        found: torch.Tensor = DEVICES[kind].linear_constant(
            x, packed, held.factor, self.out_features, format, bias, dtype, held.weights_mark
        )
        return found

    def _dispatched(
        self, x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """The product by an op of the state, which a graph or a transformation has in it."""
        kind, N, divide = weight.device.type, self.out_features, self.weight_scale_rule == "divide"
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        if self.activation_bits == 16:
            x, wanted = self._halves(x if dtype is None else x.to(dtype), bias)
            compute = _a16 if torch.is_grad_enabled() and x.requires_grad else _a16_forward
            product: torch.Tensor = compute(x, weight, scale, N, divide, wanted)
            return product if bias is None else (product + bias).to(x.dtype)
        needed = torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad))
        found: torch.Tensor = (_linear if needed else _linear_forward)(x, weight, scale, N, divide, bias, dtype)
        return found

    def _halves(self, x: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.dtype]:
        """Activations of 16 bits, and the dtype of their product."""
        if x.dtype not in contract.HALVES:
            raise refuse("x", f"of dtype {x.dtype}", " or ".join(map(str, contract.HALVES)))
        return x, x.dtype if bias is None else torch.float32

    def _follow(self, weight: torch.Tensor, scale: torch.Tensor) -> Followed:
        """What the layer computes from with this state."""
        self._check(weight, scale)
        # Writes into tensors of inference mode are not counted, so the layer takes copies whose are.
        with torch.inference_mode(False), torch.no_grad():
            weight, scale = (self._counted(name, each) for name, each in (("weight", weight), ("weight_scale", scale)))
            found = Followed(weight, scale, self.out_features, self.weight_scale_rule == "divide", self._followed)
        # Without a count of writes, the next call has to look at the bytes.
        self._followed = None if found.version is None or found.scale_version is None else found
        return found

    def _check(self, weight: torch.Tensor, scale: torch.Tensor) -> None:
        """Whether these can be the state of the layer. Raises InvalidArgumentError."""
        shape = -(-self.out_features // 4), self.in_features
        if weight.dtype is not torch.uint8 or weight.shape != shape:
            raise refuse("weight", f"{weight.dtype} {tuple(weight.shape)}", f"torch.uint8 {shape}")
        if scale.device != weight.device:
            raise refuse("weight_scale", f"on {scale.device}", f"on {weight.device}, as weight")

    def _counted(self, name: str, value: torch.Tensor) -> torch.Tensor:
        if value.is_inference() and self._buffers.get(name) is value:
            self._buffers[name] = value = value.clone()
        return value

    def _still_unloaded(self, weight: torch.Tensor, scale: torch.Tensor) -> bool:
        """Whether one of them is memory of undefined content, to be loaded."""
        if self._unloaded:
            for name, value in (("weight", weight), ("weight_scale", scale)):
                if name in self._unloaded and self._unloaded[name] != _mark(value):
                    del self._unloaded[name]
        return bool(self._unloaded)

    def extra_repr(self) -> str:
        bits = "" if self.activation_bits == 8 else f", activation_bits={self.activation_bits}"
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}{bits}"

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> BitLinear:
        """Moves and casts, as nn.Module does for all of its kind."""
        before = {name: getattr(self, name) for name in _STATE}
        self._still_unloaded(*before.values())  # drops what is loaded by now
        super()._apply(fn, recurse)
        scale = before["weight_scale"]
        if self.weight_scale.dtype != scale.dtype:
            self.weight_scale = scale.to(self.weight_scale.device)
        for name, value in before.items():
            now = getattr(self, name)
            if (name in self._unloaded or value.is_meta) and not now.is_meta:
                self._unloaded[name] = _mark(now)
        return self

    def _replicate_for_data_parallel(self) -> BitLinear:
        made: BitLinear = super()._replicate_for_data_parallel()
        made._followed = None
        if self.packed is not None:
            held = self._follow(self.weight, self.weight_scale)
            made._origin = held.derived, held.factor
        return made

    def _replicated(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, made: Derived, factor: float
    ) -> torch.Tensor:
        """The product of a replica of DataParallel, which has a new copy of the state at each call: from a copy of what
        the layer has. Launches before this one may still write it, so it is not constant."""
        packed, N, kind = made.packed.to(weight.device, non_blocking=True), self.out_features, weight.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        if self.activation_bits == 16:
            x, wanted = self._halves(x if dtype is None else x.to(dtype), bias)
            product: torch.Tensor = OPS.ternary_matmul_a16(x, packed, factor, N, made.format, wanted)
            return product if bias is None else (product + bias).to(x.dtype)
        found: torch.Tensor = OPS.linear(x, packed, factor, N, made.format, bias, dtype)
        return found

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *more: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *more)
        loaded = [name for name in _STATE if f"{prefix}{name}" in state_dict]
        for name in loaded:
            self._unloaded.pop(name, None)
        weight, scale = self.weight, self.weight_scale
        if loaded and weight.device.type in DEVICES and not self._still_unloaded(weight, scale):
            self._follow(weight, scale)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without what the device reads, for they may be loaded on another."""
        return {**self.__dict__, "_followed": None, "_unloaded": dict.fromkeys(self._unloaded)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._unloaded = {name: _mark(getattr(self, name)) for name in self._unloaded}


def _mark(value: torch.Tensor) -> _Mark:
    """What changes when a tensor is written or replaced."""
    return id(value), None if value.is_inference() else int(value._version), value.data_ptr()
