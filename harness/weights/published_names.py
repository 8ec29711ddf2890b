"""Names of tensors as BitNet and Llama models are published: those of GGUF files, and those of Hugging Face.

Both are names of the same tensor, rows and columns alike: BitNet's converters leave the rows of q and k as they are.
(llama.cpp's converter of Llama permutes them; a file that it made differs in these codes, and is said to.) A name that
is none of these is the same in both kinds of files.
"""

from __future__ import annotations

import re

_LINEAR = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_MODULES = frozenset(name.rpartition(".")[2] for name in _LINEAR.values())
_BLOCK = {
    **_LINEAR,
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_sub_norm": "self_attn.attn_sub_norm",
    "ffn_sub_norm": "mlp.ffn_sub_norm",
}
_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_FORMER = {"self_attn.inner_attn_ln": "attn_sub_norm", "mlp.ffn_layernorm": "ffn_sub_norm"}
"""As 1bitLLM's models, which came first, call them."""

_GGUF = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_HF = re.compile(r"model\.layers\.(\d+)\.([\w.]+)\.(weight|bias)")
_TO_GGUF = {**{theirs: ours for ours, theirs in _BLOCK.items()}, **_FORMER}
_WHOLE_TO_GGUF = {theirs: ours for ours, theirs in _WHOLE.items()}


def gguf_name(name: str) -> str:
    """The name in a GGUF file, of a name in either kind."""
    match = _HF.fullmatch(name)
    if match is not None and match[2] in _TO_GGUF:
        return f"blk.{match[1]}.{_TO_GGUF[match[2]]}.{match[3]}"
    stem, dot, end = name.rpartition(".")
    return f"{_WHOLE_TO_GGUF[stem]}.{end}" if dot and stem in _WHOLE_TO_GGUF and end in {"weight", "bias"} else name


def hf_name(name: str) -> str:
    """The name on Hugging Face, of a name in either kind."""
    match = _GGUF.fullmatch(name)
    if match is not None and match[2] in _BLOCK:
        return f"model.layers.{match[1]}.{_BLOCK[match[2]]}.{match[3]}"
    stem, dot, end = name.rpartition(".")
    return f"{_WHOLE[stem]}.{end}" if dot and stem in _WHOLE and end in {"weight", "bias"} else name


def is_linear(name: str) -> bool:
    """Whether it is the weight of one of a block's seven linear layers, in either kind of name."""
    match = _GGUF.fullmatch(gguf_name(name))
    return match is not None and match[2] in _LINEAR and match[3] == "weight"


def looks_linear(name: str) -> bool:
    """Whether it is called like one on Hugging Face, in whatever part of a model: a tower, an expert."""
    module, _, end = name.rpartition(".")
    return end == "weight" and module.rpartition(".")[2] in _MODULES
