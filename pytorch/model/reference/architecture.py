"""What config.json says about a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritmark.harness.weights.small_json import read_json

_LARGEST = 1 << 20
"""Bytes of a config.json."""
_DTYPES = ("float32", "bfloat16", "float16")
ACTIVATIONS = ("relu2", "silu")
_SUB_NORMS, _HEAD_NORMS, _EXPERTS = {"bitnet"}, {"qwen3", "qwen3_moe"}, {"qwen3_moe"}
TYPES = ("bitnet", "llama", "qwen3", "qwen3_moe")


class NotJudgedError(Exception):
    """There is no reference for a graph; the message states why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A graph of decoder blocks. Source: transformers 5.24, models/{bitnet,llama,qwen3,qwen3_moe}."""

    type: str
    """model_type."""
    layers: int
    hidden: int
    heads: int
    key_heads: int
    """Heads of keys and values; each serves heads / key_heads heads of queries."""
    head_size: int
    positions: int
    """The most tokens of a sequence."""
    eps: float
    """Of all norms."""
    theta: float
    """Base of rope."""
    activation: str
    tied: bool
    """Whether the head is the embedding's matrix."""
    sub_norms: bool
    """Whether norms stand before o_proj and down_proj."""
    head_norms: bool
    """Whether the heads of queries and keys have norms."""
    expert_layers: frozenset[int] = frozenset()
    """Blocks with experts in place of a feed-forward layer."""
    experts: int = 0
    used: int = 0
    """Experts of a token."""
    normed_gates: bool = False
    """Whether the weights of a token's experts add to 1."""
    interleaved: bool = False
    """Whether rope turns neighbours in place of halves: no model here does; a fault that logits are searched for."""


def architecture_of(folder: Path) -> Architecture:
    """The graph that config.json describes. Raises NotJudgedError for another graph and for options that the reference
    does not compute, and WeightFileError for a file that cannot be read."""
    config = read_json(folder / "config.json", _LARGEST)
    if not isinstance(config, dict):
        raise NotJudgedError("config.json is no object")
    kind = config.get("model_type")
    if kind not in TYPES:
        raise NotJudgedError(f"model_type {kind!r} has no reference; with one: {', '.join(TYPES)}")
    _refuse_options(config)
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return Architecture(
            type=kind,
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            heads=heads,
            key_heads=int(config.get("num_key_value_heads") or heads),
            head_size=int(config.get("head_dim") or hidden // heads),
            positions=int(config["max_position_embeddings"]),
            eps=float(config["rms_norm_eps"]),
            theta=_theta(config),
            activation=str(config["hidden_act"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            sub_norms=kind in _SUB_NORMS,
            head_norms=kind in _HEAD_NORMS,
            **(_experts(config) if kind in _EXPERTS else {}),
        )
    except KeyError as error:
        raise NotJudgedError(f"config.json has no {error}") from None


def dtype_of(folder: Path) -> str:
    """The dtype of the checkpoint. Raises NotJudgedError if config.json states none that is known."""
    config = read_json(folder / "config.json", _LARGEST)
    assert isinstance(config, dict)
    dtype = config.get("dtype", config.get("torch_dtype"))
    if dtype not in _DTYPES:
        raise NotJudgedError(f"config.json has dtype {dtype!r}; with a reference: {', '.join(_DTYPES)}")
    return str(dtype)


def _theta(config: Mapping[str, Any]) -> float:
    rope = config.get("rope_parameters") or {}
    return float(rope["rope_theta"] if "rope_theta" in rope else config["rope_theta"])


def _experts(config: Mapping[str, Any]) -> dict[str, Any]:
    dense, step = set(config.get("mlp_only_layers") or ()), int(config.get("decoder_sparse_step", 1))
    numbers = range(int(config["num_hidden_layers"]))
    return {
        "expert_layers": frozenset(each for each in numbers if each not in dense and (each + 1) % step == 0),
        "experts": int(config["num_experts"] if "num_experts" in config else config["num_local_experts"]),
        "used": int(config["num_experts_per_tok"]),
        "normed_gates": bool(config.get("norm_topk_prob", False)),
    }


def _refuse_options(config: Mapping[str, Any]) -> None:
    if config.get("hidden_act") not in ACTIVATIONS:
        raise NotJudgedError(f"hidden_act {config.get('hidden_act')!r}; with a reference: {', '.join(ACTIVATIONS)}")
    for name in ("rope_parameters", "rope_scaling"):
        rope = config.get(name) or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default" or rope.get("partial_rotary_factor", 1.0) != 1.0:
            raise NotJudgedError(f"{name} {kind!r} has no reference; with one: default")
    if config.get("use_sliding_window") or "sliding_attention" in (config.get("layer_types") or ()):
        raise NotJudgedError("sliding windows have no reference")
    if (config.get("quantization_config") or {}).get("use_rms_norm"):
        raise NotJudgedError("use_rms_norm has no reference")
