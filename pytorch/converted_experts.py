"""The experts of a layer of transformers, computed by BitExperts."""

from __future__ import annotations

import copy
from typing import Any

import torch

from tritmark.torch.bit_experts import BitExperts

_PLACE = "transformers.models."
_NAMES = ("gate_up_proj", "down_proj")


def is_experts(module: torch.nn.Module) -> bool:
    """Whether a module is a layer of experts of transformers, with stacked weights (E, N, K)."""
    if not type(module).__module__.startswith(_PLACE):
        return False
    tensors = [module._parameters.get(name) for name in _NAMES]
    return all(each is not None and each.ndim == 3 for each in tensors)


def unfit(module: Any) -> str | None:
    """Why ConvertedExperts does not do what this layer of experts does. The attributes are those that
    `use_experts_implementation` of transformers 5 sets."""
    for name, legal in {
        "has_gate": True,
        "has_bias": False,
        "is_transposed": False,
        "is_concatenated": True,
        "has_post_expert_norm": False,
        "_is_expert_parallel": False,
    }.items():
        found = getattr(module, name, None)
        if found is not legal:
            return f"its {name} is {found}, and only {legal} is supported"
    return None


class ConvertedExperts(torch.nn.Module):  # type: ignore[misc]
    """As the experts of transformers: hidden_states (T, H), top_k_index (T, k) and top_k_weights (T, k) to (T, H).
    Activations are quantized to int8 before each of the two products."""

    def __init__(self, experts: Any, gate_up_proj: BitExperts, down_proj: BitExperts) -> None:
        super().__init__()
        self.gate_up_proj, self.down_proj = gate_up_proj, down_proj
        # The activation between the products is that of the model: the layer without its weights.
        shell = copy.copy(experts)
        shell._parameters, shell._modules = dict.fromkeys(experts._parameters), dict(experts._modules)
        self.activation = shell

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        inner = self.activation._apply_gate(self.gate_up_proj(hidden_states, top_k_index))
        out: torch.Tensor = self.down_proj(inner, top_k_index, top_k_weights)
        return out.to(hidden_states.dtype)
