"""The state of a converted model in the form that its checkpoint had, for save_pretrained."""

from __future__ import annotations

from typing import Any

import torch

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats.hf_pack import HF_PACK
from tritmark.torch.bit_experts import BitExperts
from tritmark.torch.bit_linear import BitLinear
from tritmark.torch.conversion import Conversion
from tritmark.torch.converted_experts import ConvertedExperts

_OWN = ("weight", "weight_scale", "_extra_state")


def require_exact(model: Any, conversion: Conversion, stored: Any) -> None:
    """Refuse a model whose saved state would not be the same function. `stored` is the configuration of BitNet with
    which it was loaded, or None for ternary floats. Raises InvalidArgumentError."""
    dtype = model.dtype
    for name, module in model.named_modules():
        if not isinstance(module, BitLinear | BitExperts):
            continue
        scale = module.weight_scale
        if bool((scale.to(dtype).float() != scale).any()):
            raise _refuse(name, f"a scale that {dtype} rounds", "the folder it came from, or a model in float32")
        if isinstance(module, BitLinear) and module.bias is not None and _scaled_bias(stored):
            raise _refuse(name, "a bias that contains the scale of its weights", "the folder it came from")
    if stored is not None and stored.quantization_mode == "online":
        kept = [each.name for each in conversion.kept if each.was == "AutoBitLinear"]
        if kept:
            raise _refuse(kept[0], "floats beside layers that were quantized", "a model with all such layers replaced")


def _scaled_bias(stored: Any) -> bool:
    return stored is not None and stored.linear_class == "autobitlinear" and stored.quantization_mode == "offline"


def state_of(model: Any, *, packed: bool) -> dict[str, torch.Tensor]:
    """The state of a converted model: layers of `packed` weights as they are, or code * scale in the dtype of the
    model under the names of before."""
    state: dict[str, torch.Tensor] = model.state_dict()
    for name, module in model.named_modules():
        if isinstance(module, BitLinear):
            state.pop(f"{name}._extra_state", None)
            if packed:
                state[f"{name}.weight_scale"] = module.weight_scale.to(model.dtype)
            else:
                state.pop(f"{name}.weight_scale")
                state[f"{name}.weight"] = _floats(module.weight, module.weight_scale, module.out_features, model.dtype)
        elif isinstance(module, ConvertedExperts):
            for each in ("gate_up_proj", "down_proj"):
                made = getattr(module, each)
                for own in _OWN:
                    state.pop(f"{name}.{each}.{own}", None)
                state[f"{name}.{each}"] = torch.stack(
                    [
                        _floats(weight, scale, made.out_features, model.dtype)
                        for weight, scale in zip(made.weight, made.weight_scale, strict=True)
                    ]
                )
    return state


def _floats(weight: torch.Tensor, scale: torch.Tensor, rows: int, dtype: torch.dtype) -> torch.Tensor:
    """Weights (N, K) of packed rows; exact if `dtype` holds the scales."""
    shape = rows, weight.shape[1]
    codes, _ = HF_PACK.unpack(weight.cpu().numpy(), shape, tail="error")
    found = torch.from_numpy(codes).to(weight.device, torch.float32)
    groups = scale.shape[1] if scale.ndim == 2 else 1
    return (found.reshape(rows, groups, -1) * scale.reshape(-1, groups, 1)).reshape(shape).to(dtype)


def _refuse(name: str, found: str, legal: str) -> InvalidArgumentError:
    return InvalidArgumentError(op="save_pretrained", argument=f"the layer {name}", found=f"with {found}", legal=legal)
