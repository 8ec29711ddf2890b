"""BitLinear: a linear layer with packed ternary weights, as a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.absmean_quantize.api import absmean_quantize
from tritmark.kernels.formats.hf_pack import HF_PACK
from tritmark.kernels.hadamard_quantize.layer_argument import check_block
from tritmark.torch import contract
from tritmark.torch.derived import Derived, forget, refuse
from tritmark.torch.direct import unseen
from tritmark.torch.followed import DEVICES, Followed
from tritmark.torch.ops import OPS
from tritmark.torch.recovering import refuse_memory

_RULES = ("multiply", "divide")
_BITS = (8, 16)
_RAISE, _RECOVER = "raise", "recover"
_STATE = ("weight", "weight_scale")
_EXTRA = "_extra_state"
"""Key of a module's own state in PyTorch."""
_linear = OPS.bit_linear.default
_linear_forward = OPS.bit_linear_forward.default
_linear_recovering = OPS.bit_linear_recovering.default
_rotate = OPS.hadamard_transform.default
_a16 = OPS.bit_linear_a16.default
_a16_forward = OPS.bit_linear_a16_forward.default
_Mark = tuple[int, int | None, int]


class BitLinear(torch.nn.Module):  # type: ignore[misc]
    """y = x @ W.T + bias with ternary weights W (N, K). Activations are quantized to int8 in each call (W2A8). With
    `activation_bits` 16 they are bfloat16 or float16 and are not quantized (W2A16).

    The state is that of BitNet models on Hugging Face (format hf_pack): `weight`, uint8 (ceil(N/4), K), `weight_scale`
    of shape (1,), and optionally `bias` (N,). `weight_scale_rule` gives the meaning of the scale. "multiply": the value
    of code 1 (`linear_class` autobitlinear, as in bitnet-b1.58-2B-4T). "divide": its inverse (bitlinear). States record
    the rule, and a state of the other rule is refused. The scale stays float32 when the module changes dtype.

    With `group_size` each group of so many weights of a row has a scale, and `weight_scale` is (N, K / group_size), as
    in Ternary Bonsai (128) and Q2_0 of llama.cpp (64). Kernels read these scales as float16; a scale that float16 does
    not hold exactly is refused. They may be zero or negative.

    Kernels read another layout, `packed`. It is made at the first call, and again after `weight` or `weight_scale` were
    replaced, moved or written; an invalid state is refused. Call `repack` after writes that PyTorch does not count
    (`.data`, NumPy, collectives); on the CPU most of these are detected. PyTorch counts no writes to weights of
    inference mode, so these are copied into a buffer with counted writes. Inputs are float32, bfloat16 or float16
    (..., K). The output has their dtype, or autocast's; inputs are not rounded to autocast's dtype. See
    torch.ops.tritmark.linear for the arithmetic and the gradient.

    With 16 bits inputs are bfloat16 or float16, and are cast to autocast's dtype; see
    torch.ops.tritmark.ternary_matmul_a16. A bias is added in float32 before the sum is rounded. The state is the same.

    With `hadamard=(block_size, signs)` the weights are stored as W * S * H (`prism.hadamard.*`): inputs are rotated in
    float32 before they are quantized, or in their own dtype with 16 bits; see torch.ops.tritmark.hadamard_transform.
    `signs` is a tensor (in_features,) of -1 and 1, or None for none. It is the buffer `hadamard_signs`, int8, which
    moves with the module and is not part of the state.

    With `on_error="recover"` the product runs in a worker process, and failures of kernels are recovered from
    (docs/guides/recover.md), also in compiled graphs and with gradients. Such a layer computes CPU tensors with 8 bits
    and refuses others. The attribute can be set at any time; it is not part of the state.
    """

    weight: torch.Tensor
    weight_scale: torch.Tensor
    on_error: str = _RAISE
    group_size: int | None = None
    """Modules that were pickled before it existed have one scale."""
    hadamard_block: int | None = None
    """None for weights that are not rotated."""
    hadamard_signs: torch.Tensor | None
    _origin: tuple[Derived, float] | None = None
    """In a replica of DataParallel: the weights and the scale that the layer computes with."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        *,
        group_size: int | None = None,
        weight_scale_rule: str = "multiply",
        activation_bits: int = 8,
        hadamard: tuple[int, torch.Tensor | None] | None = None,
        on_error: str = _RAISE,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """All weights are zero until they are loaded. `dtype` is that of the bias. Raises InvalidArgumentError, and
        UsageError for "recover" in a process that judges kernels."""
        super().__init__()
        if activation_bits not in _BITS:
            raise refuse("activation_bits", repr(activation_bits), " or ".join(map(str, _BITS)))
        self.in_features, self.out_features, self.group_size = in_features, out_features, group_size
        self.weight_scale_rule, self.activation_bits = weight_scale_rule, activation_bits
        self.on_error = on_error
        if hadamard is not None:
            self._take_hadamard(hadamard, device)
        shape = HF_PACK.packed_shape(HF_PACK.check_shape("BitLinear", "features", (out_features, in_features)))
        self.register_buffer("weight", torch.empty(shape, dtype=torch.uint8, device=device))
        scales = torch.ones(self._scale_shape(), device=device, dtype=torch.float32)
        self.register_buffer("weight_scale", scales)
        self.register_parameter(
            "bias", torch.nn.Parameter(torch.zeros(out_features, device=device, dtype=dtype)) if bias else None
        )
        self._followed: Followed | None = None
        self._unloaded: dict[str, _Mark] = {}
        if not self.weight.is_meta:
            zeros = HF_PACK.pack(np.zeros((out_features, in_features), np.int8), 1.0, tail="error")
            self.weight.copy_(torch.from_numpy(zeros))

    @classmethod
    def from_float(cls, linear: torch.nn.Linear, *, activation_bits: int = 8, on_error: str = _RAISE) -> BitLinear:
        """Quantize the weights of `linear` by the absmean rule of BitNet b1.58, on its device, with a copy of its bias.
        Raises InvalidArgumentError for a NaN or infinity."""
        weights = linear.weight.detach()
        floats = weights.float().cpu().contiguous()
        try:
            quantized = absmean_quantize(floats.numpy())
        except InvalidArgumentError as error:
            raise contract.refuse_nonfinite("BitLinear.from_float", "weight", floats) or error from None
        packed = torch.from_numpy(HF_PACK.pack(quantized.codes, quantized.scale, tail="error"))
        bias = None if linear.bias is None else linear.bias.detach().clone()
        return cls.from_packed(
            packed.to(weights.device),
            float(quantized.scale),
            bias,
            out_features=linear.out_features,
            activation_bits=activation_bits,
            on_error=on_error,
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
        hadamard: tuple[int, torch.Tensor | None] | None = None,
        on_error: str = _RAISE,
    ) -> BitLinear:
        """Make a layer of weights in Hugging Face's layout, uint8 (ceil(N/4), K), and their scale, one number or
        (N, K / group_size). The layer shares the weights.

        N is four times the rows by default. Raises InvalidArgumentError for invalid bytes or invalid scales.
        """
        if not isinstance(weight, torch.Tensor) or weight.dtype is not torch.uint8 or weight.ndim != 2:
            found = f"{weight.dtype} {tuple(weight.shape)}" if isinstance(weight, torch.Tensor) else repr(type(weight))
            raise refuse("weight", found, "a uint8 tensor (ceil(N/4), K)")
        N = 4 * weight.shape[0] if out_features is None else out_features
        if weight.shape[0] != -(-N // 4):
            raise refuse("out_features", str(N), f"{4 * weight.shape[0] - 3} to {4 * weight.shape[0]}")
        K = weight.shape[1]
        scale = torch.as_tensor(weight_scale, dtype=torch.float32, device=weight.device)
        if scale.numel() != 1 and (scale.ndim != 2 or len(scale) != N or not scale.numel() or K % scale.shape[1]):
            raise refuse("weight_scale", f"of shape {tuple(scale.shape)}", f"one number, or ({N}, {K} / group_size)")
        made = cls(
            K,
            N,
            group_size=None if scale.numel() == 1 else K // scale.shape[1],
            weight_scale_rule=weight_scale_rule,
            activation_bits=activation_bits,
            on_error=on_error,
            device="meta",
        )
        if bias is not None:
            if tuple(bias.shape) != (N,) or not bias.is_floating_point():
                raise refuse("bias", f"{bias.dtype} {tuple(bias.shape)}", f"floating point ({N},)")
            made.bias = torch.nn.Parameter(bias)
        if hadamard is not None:
            made._take_hadamard(hadamard, weight.device)
        made.weight, made.weight_scale = weight, scale.detach().reshape(made._scale_shape())
        if weight.device.type in DEVICES:
            made._follow(made.weight, made.weight_scale)
        return made

    @property
    def packed(self) -> torch.Tensor | None:
        """The weights in the layout of the kernels; do not write them. None before the weights are loaded, and on a
        device without kernels. Raises InvalidArgumentError for an invalid state."""
        weight, scale = self.weight, self.weight_scale
        if weight.device.type not in DEVICES or self._still_unloaded(weight, scale):
            return None
        return self._follow(weight, scale).derived.packed

    def follow_again(self) -> None:
        """Take the packed weights that are kept for this state, after they were moved."""
        self._followed = None
        self._follow(self.weight, self.weight_scale)

    def repack(self) -> None:
        """Read weights and scale again after writes that PyTorch does not count. Waits for the device. Raises
        InvalidArgumentError for invalid weights or an invalid scale."""
        self._followed = None
        self._unloaded.clear()
        weight, scale = self.weight, self.weight_scale
        if weight.device.type in DEVICES:
            forget(weight)
            forget(scale)
            self._follow(weight, scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., K) to (..., N). Raises InvalidArgumentError, and NoCompatibleKernelError on a device without
        kernels."""
        if self.hadamard_block is None:
            return self._product(x)
        if not x.ndim or x.shape[-1] != self.in_features:
            raise refuse("x", f"of shape {tuple(x.shape)}", f"of shape (..., {self.in_features})")
        dtype = torch.float32 if self.activation_bits == 8 else None
        y = self._product(_rotate(x, self.hadamard_signs, self.hadamard_block, False, dtype))
        return y if torch.is_autocast_enabled(x.device.type) else y.to(x.dtype)

    def _take_hadamard(self, hadamard: tuple[int, torch.Tensor | None], device: Any) -> None:
        """Keep the rotation of the weights. Raises InvalidArgumentError for an invalid one."""
        block, signs = hadamard
        K = self.in_features
        block = check_block("BitLinear", block, K)
        if signs is not None:
            if tuple(signs.shape) != (K,) or (not signs.is_meta and not bool((signs.abs() == 1).all())):
                raise refuse("hadamard", f"signs of shape {tuple(signs.shape)}", f"-1 and 1 of shape ({K},), or None")
            signs = signs.to(device=device, dtype=torch.int8)
        self.hadamard_block = block
        self.register_buffer("hadamard_signs", signs, persistent=False)

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        """The layer without the rotation."""
        # nn.Module searches three dictionaries for each attribute, which takes time in each call.
        buffers, parameters = self._buffers, self._parameters
        weight, scale = buffers.get("weight"), buffers.get("weight_scale")
        if weight is None or scale is None:  # they are parameters, or parametrized
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
                raise refuse("weight", f"on {weight.device}, or not loaded", f"loaded weight on {' or '.join(DEVICES)}")
            self._check(weight, scale)
            held = None
        else:
            kind = held.kind
        needed = torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad))
        if needed or self.on_error != _RAISE or not unseen(kind, x, weight, bias):
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
        """The product by an op on the state, for graphs and transformations."""
        kind, N, divide = weight.device.type, self.out_features, self.weight_scale_rule == "divide"
        recovers = self.on_error != _RAISE
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        if self.activation_bits == 16:
            if recovers:
                raise _refuse_a16()
            x, wanted = self._halves(x if dtype is None else x.to(dtype), bias)
            compute = _a16 if torch.is_grad_enabled() and x.requires_grad else _a16_forward
            product: torch.Tensor = compute(x, weight, scale, N, divide, wanted)
            return product if bias is None else (product + bias).to(x.dtype)
        needed = torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad))
        compute = _linear_recovering if recovers else _linear if needed else _linear_forward
        found: torch.Tensor = compute(x, weight, scale, N, divide, bias, dtype)
        return found

    def _halves(self, x: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.dtype]:
        """Activations of 16 bits, and the dtype of their product."""
        if x.dtype not in contract.HALVES:
            raise refuse("x", f"of dtype {x.dtype}", " or ".join(map(str, contract.HALVES)))
        return x, x.dtype if bias is None else torch.float32

    def _follow(self, weight: torch.Tensor, scale: torch.Tensor) -> Followed:
        """Prepare the weights and the scale of this state for calls."""
        self._check(weight, scale)
        # Writes to tensors of inference mode are not counted, so the layer takes copies with counted writes.
        with torch.inference_mode(False), torch.no_grad():
            weight, scale = (self._counted(name, each) for name, each in (("weight", weight), ("weight_scale", scale)))
            found = Followed(weight, scale, self.out_features, self.weight_scale_rule == "divide", self._followed)
        # Without a count of writes, the next call must check the bytes.
        self._followed = None if found.version is None or found.scale_version is None else found
        return found

    def _check(self, weight: torch.Tensor, scale: torch.Tensor) -> None:
        """Raise InvalidArgumentError unless these can be the state of the layer."""
        shape = -(-self.out_features // 4), self.in_features
        if weight.dtype is not torch.uint8 or weight.shape != shape:
            raise refuse("weight", f"{weight.dtype} {tuple(weight.shape)}", f"torch.uint8 {shape}")
        if scale.numel() != 1 if self.group_size is None else scale.shape != self._scale_shape():
            legal = "one number" if self.group_size is None else f"of shape {self._scale_shape()}"
            raise refuse("weight_scale", f"of shape {tuple(scale.shape)}", legal)
        if scale.device != weight.device:
            raise refuse("weight_scale", f"on {scale.device}", f"on {weight.device}, the device of weight")

    def _scale_shape(self) -> tuple[int, ...]:
        group = self.group_size
        if group is None:
            return (1,)
        if isinstance(group, bool) or not isinstance(group, int) or group < 1 or self.in_features % group:
            raise refuse("group_size", repr(group), f"a divisor of in_features, {self.in_features}, or None")
        return self.out_features, self.in_features // group

    def _counted(self, name: str, value: torch.Tensor) -> torch.Tensor:
        if value.is_inference() and self._buffers.get(name) is value:
            self._buffers[name] = value = value.clone()
        return value

    def _still_unloaded(self, weight: torch.Tensor, scale: torch.Tensor) -> bool:
        """Whether `weight` or `weight_scale` is uninitialized memory."""
        if self._unloaded:
            for name, value in (("weight", weight), ("weight_scale", scale)):
                if name in self._unloaded and self._unloaded[name] != _mark(value):
                    del self._unloaded[name]
        return bool(self._unloaded)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight_scale_rule":
            if value not in _RULES:
                raise refuse(name, repr(value), " or ".join(map(repr, _RULES)))
            self.__dict__["_followed"] = None  # the factor in it is that of the earlier rule
        elif name == "on_error" and value != _RAISE:
            # Late, since it imports the worker processes.
            from tritmark.kernels.recovering.client import check_on_error

            check_on_error("BitLinear", value)
            if self.activation_bits == 16:
                raise _refuse_a16()
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        bits = "" if self.group_size is None else f", group_size={self.group_size}"
        bits += "" if self.hadamard_block is None else f", hadamard_block={self.hadamard_block}"
        bits += "" if self.activation_bits == 8 else f", activation_bits={self.activation_bits}"
        further = bits if self.on_error == _RAISE else f"{bits}, on_error={self.on_error!r}"
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}{further}"

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> BitLinear:
        """Move or cast the state, as nn.Module does."""
        before = {name: getattr(self, name) for name in _STATE}
        self._still_unloaded(*before.values())  # drops the marks of loaded tensors
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
        """The product of a replica of DataParallel, which gets a new copy of the state in each call: computed from a
        copy of the layer's packed weights. Earlier launches may still write this copy, so it is not constant."""
        if self.on_error != _RAISE:
            raise refuse_memory("weight", weight)
        packed, N, kind = made.packed.to(weight.device, non_blocking=True), self.out_features, weight.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        if self.activation_bits == 16:
            x, wanted = self._halves(x if dtype is None else x.to(dtype), bias)
            product: torch.Tensor = OPS.ternary_matmul_a16(x, packed, factor, N, made.format, wanted)
            return product if bias is None else (product + bias).to(x.dtype)
        found: torch.Tensor = OPS.linear(x, packed, factor, N, made.format, bias, dtype)
        return found

    def get_extra_state(self) -> torch.Tensor:
        """The rule of the scale as ASCII, uint8. States of the rule "multiply" leave it out, as on Hugging Face."""
        return torch.tensor(list(self.weight_scale_rule.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Raise InvalidArgumentError if a state has another rule than the layer."""
        if isinstance(state, torch.Tensor) and state.is_meta:
            return
        try:  # a state that was cast as a whole has the bytes in another dtype
            values = state.flatten().tolist()
            stored = bytes(map(int, values)).decode("ascii") if values == list(map(int, values)) else ""
        except (AttributeError, TypeError, ValueError, OverflowError):
            stored = ""
        if stored not in _RULES:
            found = f"{state!r:.60} in the state"
            legal = f"{' or '.join(map(repr, _RULES))} in ASCII, as a uint8 tensor"
            raise refuse("weight_scale_rule", found, legal)
        self._check_rule(stored)

    def _check_rule(self, stored: str) -> None:
        if stored != self.weight_scale_rule:
            found = f"{stored!r} in the state and {self.weight_scale_rule!r} in the layer"
            legal = f"the same in both; BitLinear(..., weight_scale_rule={stored!r}) makes a layer for this state"
            raise refuse("weight_scale_rule", found, legal)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.weight_scale_rule == _RULES[0]:
            destination.pop(f"{prefix}{_EXTRA}", None)
        # Files of torch.save keep it for both rules, without a key that loaders of single tensors do not know.
        metadata = getattr(destination, "_metadata", {})
        metadata.setdefault(prefix[:-1], {})["weight_scale_rule"] = self.weight_scale_rule

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        *more: Any,
    ) -> None:
        self._check_rule(local_metadata.get("weight_scale_rule", self.weight_scale_rule))
        if f"{prefix}{_EXTRA}" in state_dict:
            self.set_extra_state(state_dict[f"{prefix}{_EXTRA}"])  # before anything is loaded
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, *more)
        if f"{prefix}{_EXTRA}" in missing_keys:
            missing_keys.remove(f"{prefix}{_EXTRA}")
        loaded = [name for name in _STATE if f"{prefix}{name}" in state_dict]
        for name in loaded:
            self._unloaded.pop(name, None)
        weight, scale = self.weight, self.weight_scale
        if loaded and weight.device.type in DEVICES and not self._still_unloaded(weight, scale):
            self._follow(weight, scale)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without the packed weights, because the copy may be loaded on another device."""
        return {**self.__dict__, "_followed": None, "_unloaded": dict.fromkeys(self._unloaded)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._unloaded = {name: _mark(getattr(self, name)) for name in self._unloaded}


def _refuse_a16() -> InvalidArgumentError:
    found = f"{_RECOVER!r} with activation_bits 16, which PyTorch computes on the CPU, without a kernel"
    return refuse("on_error", found, '"raise", or "recover" with activation_bits 8')


def _mark(value: torch.Tensor) -> _Mark:
    """A value that changes when a tensor is written or replaced."""
    return id(value), None if value.is_inference() else int(value._version), value.data_ptr()
