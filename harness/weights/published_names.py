"""Published names of the tensors of BitNet and Llama models, in GGUF files and on Hugging Face.

Both names denote the same tensor with the same rows and columns: BitNet's converters keep the rows of q and k.
(llama.cpp's converter for Llama permutes them. A file from it has other codes there, and a comparison reports them.) A
name outside these tables is the same in both kinds of files.
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
    "ffn_gate_inp": "mlp.gate",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_sub_norm": "self_attn.attn_sub_norm",
    "ffn_sub_norm": "mlp.ffn_sub_norm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_FORMER = {"self_attn.inner_attn_ln": "attn_sub_norm", "mlp.ffn_layernorm": "ffn_sub_norm"}
"""Names in 1bitLLM's models, the first ones published."""

_GGUF = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_HF = re.compile(r"model\.layers\.(\d+)\.([\w.]+)\.(weight|bias)")
_TO_GGUF = {**{theirs: ours for ours, theirs in _BLOCK.items()}, **_FORMER}
_WHOLE_TO_GGUF = {theirs: ours for ours, theirs in _WHOLE.items()}


_ONNX = re.compile(r"(model\.layers\.\d+\.(?:self_attn|attn|mlp)\.[a-z]+_proj|lm_head)\.MatMul\.q?weight(?:_\w+)?")
"""Names that exporters to ONNX give to the weights of a layer."""
_EXPERT = re.compile(r"model\.layers\.(\d+)\.mlp\.(?:experts\.(\d+)|switch_mlp)\.(gate|up|down)_proj\.weight")


def gguf_name(name: str) -> str:
    """The GGUF name of a tensor; `name` may be of either kind."""
    name = matrix_name(name)
    match = _HF.fullmatch(name)
    if match is not None and match[2] in _TO_GGUF:
        return f"blk.{match[1]}.{_TO_GGUF[match[2]]}.{match[3]}"
    stem, dot, end = name.rpartition(".")
    return f"{_WHOLE_TO_GGUF[stem]}.{end}" if dot and stem in _WHOLE_TO_GGUF and end in {"weight", "bias"} else name


def hf_name(name: str) -> str:
    """The Hugging Face name of a tensor; `name` may be of either kind."""
    name = matrix_name(name)
    match = _GGUF.fullmatch(name)
    if match is not None and match[2] in _BLOCK:
        return f"model.layers.{match[1]}.{_BLOCK[match[2]]}.{match[3]}"
    stem, dot, end = name.rpartition(".")
    return f"{_WHOLE[stem]}.{end}" if dot and stem in _WHOLE and end in {"weight", "bias"} else name


def matrix_name(name: str) -> str:
    """The name of the matrix whose words a tensor holds; other names are unchanged."""
    match = _ONNX.fullmatch(name)
    if match is not None:
        return f"{match[1].replace('.attn.', '.self_attn.')}.weight"
    if name.endswith(".qweight"):
        return f"{name.removesuffix('qweight')}weight"
    return name.removesuffix("_packed") if name.endswith(".weight_packed") else name


def expert_name(name: str, expert: int | None) -> str:
    """The GGUF name of a tensor, with the number of the expert before its last part: for matrix `expert` of a 3-D
    tensor, and for an expert that is a tensor of its own."""
    match = _EXPERT.fullmatch(matrix_name(name))
    if match is None:
        found = gguf_name(name)
    else:
        found = f"blk.{match[1]}.ffn_{match[3]}_exps.weight"
        expert = int(match[2]) if match[2] is not None else expert
    stem, dot, end = found.rpartition(".")
    return found if expert is None else f"{stem}{dot}{expert}.{end}"


def is_linear(name: str) -> bool:
    """Whether it names the weight of one of a block's seven linear layers; `name` may be of either kind."""
    match = _GGUF.fullmatch(gguf_name(name))
    return match is not None and match[2] in _LINEAR and match[3] == "weight"


def looks_linear(name: str) -> bool:
    """Whether the Hugging Face name ends like that of such a layer, in any part of a model (a tower, an expert)."""
    module, _, end = name.rpartition(".")
    return end == "weight" and module.rpartition(".")[2] in _MODULES
