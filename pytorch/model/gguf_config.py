"""The configuration in transformers of a model in a GGUF file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.gguf_values import value_of
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.source import WeightSource

_KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_OPTIONAL = {"vocab_size": "vocab_size", "attention.key_length": "head_dim"}
_EXPERTS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
_WIDTHS = ("attention.value_length", "rope.dimension_count")
"""Keys that must be the width of a head: transformers' graphs know no other."""
_NO_CHANGE = {"rope.scaling.type": ("none",), "rope.scaling.factor": (0, 1)}
"""Keys that leave the graph as it is with these values only."""


@dataclass(frozen=True, slots=True)
class GgufArchitecture:
    """How transformers calls an architecture of GGUF."""

    model_type: str
    act: str
    int8: bool = False
    """Whether its linear layers quantize activations to int8, as BitNet's do."""
    interleaved: bool = False
    """Whether the two halves of each head of q and k are interleaved, for llama.cpp's rotation of neighbours."""
    experts: bool = False
    settings: tuple[tuple[str, Any], ...] = ()
    """Further fields of the configuration."""


ARCHITECTURES = {
    # The graph of 1bitLLM's models in llama.cpp has SiLU, that of Microsoft's 2B-4T the squared ReLU.
    "bitnet": GgufArchitecture("bitnet", "silu", int8=True),
    "bitnet-b1.58": GgufArchitecture("bitnet", "relu2", int8=True),
    "bitnet-25": GgufArchitecture("bitnet", "relu2", int8=True),
    "llama": GgufArchitecture("llama", "silu", interleaved=True),
    "qwen2": GgufArchitecture("qwen2", "silu"),
    "qwen3": GgufArchitecture("qwen3", "silu"),
    "qwen3moe": GgufArchitecture("qwen3_moe", "silu", experts=True, settings=(("norm_topk_prob", True),)),
}
"""By name in GGUF."""


def architecture_of(source: WeightSource) -> str:
    """The value of general.architecture. Raises WeightFileError without one."""
    for pair in source.header.pairs:
        if pair.key == "general.architecture":
            return str(value_of(source, pair))
    raise source.file_error("no key general.architecture", "a whole model")


def configuration_of(source: WeightSource, name: str) -> Any:
    """The configuration of transformers for a file of the architecture `name`.

    Raises WeightFileError for a missing key, and for a key whose effect on the graph is not known: a model would run
    with another graph than its own.
    """
    import transformers

    known = ARCHITECTURES[name]
    values = {
        pair.key.removeprefix(f"{name}."): value_of(source, pair)
        for pair in source.header.pairs
        if pair.key.startswith(f"{name}.")
    }
    wanted = {**_KEYS, **(_EXPERTS if known.experts else {})}
    missing = [f"{name}.{key}" for key in wanted if key not in values]
    if missing:
        raise source.file_error(f"no key {', '.join(missing)}", "a file of a whole model with all its sizes")
    fields = {field: values[key] for key, field in (wanted | _OPTIONAL).items() if key in values}
    width = fields.setdefault("head_dim", fields["hidden_size"] // fields["num_attention_heads"])
    if "rope.dimension_count" in values and "attention.key_length" not in values:
        width = fields["head_dim"] = values["rope.dimension_count"]
    for key in set(values) - set(wanted) - set(_OPTIONAL):
        legal: tuple[Any, ...] = (width,) if key in _WIDTHS else _NO_CHANGE.get(key, ())
        if values[key] not in legal:
            _refuse(source, f"{name}.{key}", values[key], legal)
    embedding = source.tensor("token_embd.weight")
    if embedding is None:
        raise source.file_error("no tensor token_embd.weight", "a whole model")
    if fields.setdefault("vocab_size", embedding.shape[0]) != embedding.shape[0]:
        _refuse(source, f"{name}.vocab_size", fields["vocab_size"], (embedding.shape[0],))
    marks = {
        f"{each}_token_id": value_of(source, pair)
        for each in ("bos", "eos")
        for pair in source.header.pairs
        if pair.key == f"tokenizer.ggml.{each}_token_id"
    }
    return transformers.AutoConfig.for_model(
        known.model_type,
        hidden_act=known.act,
        tie_word_embeddings=source.tensor("output.weight") is None,
        **{"bos_token_id": None, "eos_token_id": None, **marks},
        **fields,
        **dict(known.settings),
    )


def _refuse(source: WeightSource, key: str, value: Any, legal: tuple[Any, ...]) -> None:
    found = f"{inert(key)} {inert(str(value))}, whose effect on the graph is not implemented"
    of = f"{' or '.join(map(str, legal))}" if legal else "a file without this key"
    raise WeightFileError(path=source.path, found=found, legal=f"{of}; next: a folder of transformers")
