"""The parts that the modules of a model belong to, and what each must read and compute."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch

from tritmark.torch.bit_experts import BitExperts
from tritmark.torch.bit_linear import BitLinear
from tritmark.torch.converted_experts import ConvertedExperts

REST = "rest"
"""Residual sums, positions, masks and the cache: operations outside of every named part."""
PYTHON = "Python"
IDLE = "idle"
_BLOCK = re.compile(r"(?:^|\.)layers\.(\d+)$")
_LINEARS = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "qkv_proj"), "q, k, v"),
    "o_proj": "o",
    **dict.fromkeys(("gate_proj", "up_proj", "gate_up_proj"), "gate, up"),
    "down_proj": "down",
}


def part_of(model: Any, name: str, module: torch.nn.Module) -> str | None:
    """The part that the own operations of a module count to; None for a module that is no frame of its own."""
    kind, last = type(module).__name__, name.rpartition(".")[2]
    if module is model.get_output_embeddings():
        return "head"
    if module is model.get_input_embeddings():
        return "embedding"
    if isinstance(module, BitExperts):
        return f"experts: {_LINEARS.get(last, last)}"
    if isinstance(module, BitLinear | torch.nn.Linear) or kind.endswith("BitLinear"):
        return _LINEARS.get(last, "other linears")
    if kind.endswith("Router"):
        return "router"
    if isinstance(module, ConvertedExperts):
        return "activation"
    if "Norm" in kind:
        return "norms"
    if kind.endswith("Attention"):
        return "attention"
    if kind.endswith(("MLP", "MoeBlock", "MoE", "Experts")):
        return "activation"
    return REST if _BLOCK.search(name) else None


def title_of(name: str) -> str:
    """The name of a frame."""
    block = _BLOCK.search(name)
    return f"block {block[1]}" if block else name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What a step computes."""

    config: Any
    """Of the model."""
    size: int
    """Bytes of a float of the model."""
    batch: int
    length: int
    """New tokens of each sequence."""
    context: int
    """Earlier tokens of each sequence, in the cache."""


def work_of(module: Any, part: str, rows: int, step: StepFacts) -> tuple[int, int]:
    """The fewest bytes of weights, or of keys and values, and the int8 operations of a module's own, in a step. `rows`
    of activations pass the module. Operations of floats have no measured limit and are not counted."""
    config = step.config
    if isinstance(module, BitLinear):
        packed = module.packed
        nbytes = 0 if packed is None else packed.nbytes
        operations = 2 * rows * module.in_features * module.out_features if module.activation_bits == 8 else 0
        return nbytes, operations
    if isinstance(module, BitExperts):
        held: Any = module.packed
        used = int(config.num_experts_per_tok)
        nbytes = 0 if held is None else int(held.packed.nbytes * min(1.0, rows * used / module.num_experts))
        return nbytes, 2 * rows * used * module.in_features * module.out_features
    if part == "embedding":
        return rows * module.weight.shape[1] * module.weight.element_size(), 0
    if part == "attention":
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return 2 * step.batch * (step.context + step.length) * heads * width * step.size, 0
    weight = getattr(module, "weight", None)
    return (weight.nbytes, 0) if isinstance(weight, torch.Tensor) else (0, 0)
