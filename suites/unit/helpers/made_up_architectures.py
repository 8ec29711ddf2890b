"""Small models of transformers of several architectures, with random ternary weights, as folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from made_up_transformers import bitnet_folder

VOCABULARY = 64
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def _lively(model: Any) -> None:
    """Norm weights other than 1, so that leaving one out shows, and attention that is far from uniform."""
    import torch

    for name, value in model.named_parameters():
        if "norm" in name:
            value.data.copy_(torch.rand_like(value) + 0.5)
    model.get_input_embeddings().weight.data.mul_(20)


def folder_of(kind: str, folder: Path, *, dtype: str = "float32") -> Path:
    """A folder of `kind`: bitnet, online (bitnet with float weights), falcon (llama with packed weights of bitlinear),
    qwen3 and qwen3_moe (ternary floats)."""
    import torch

    torch.manual_seed(0)
    if kind == "bitnet":
        return bitnet_folder(folder, dtype=dtype)
    if kind == "online":
        return _online(folder, dtype)
    if kind == "falcon":
        return _falcon(folder, dtype)
    return _floats(kind, folder, dtype)


def _online(folder: Path, dtype: str) -> Path:
    import torch
    import transformers

    model = transformers.BitNetForCausalLM(transformers.BitNetConfig(**_SIZES)).to(getattr(torch, dtype))
    _lively(model)
    model.save_pretrained(folder)
    return _quantized(folder, linear_class="autobitlinear", quantization_mode="online")


def _falcon(folder: Path, dtype: str) -> Path:
    import torch
    import transformers
    from transformers.integrations import bitnet

    config = transformers.LlamaConfig(**_SIZES, rope_parameters={"rope_type": "default", "rope_theta": 1000042.0})
    model = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype))
    _lively(model)
    state: dict[str, Any] = model.state_dict()
    for name, value in list(state.items()):
        if name.endswith("_proj.weight"):
            state[name] = bitnet.pack_weights(torch.randint(-1, 2, value.shape))
            state[f"{name}_scale"] = (20 * torch.rand(1) + 5).to(value.dtype)
    model.save_pretrained(folder, state_dict=state)
    return _quantized(folder, modules_to_not_convert=["lm_head"])


def _floats(kind: str, folder: Path, dtype: str) -> Path:
    import torch
    import transformers

    if kind == "qwen3":
        config: Any = transformers.Qwen3Config(**_SIZES, head_dim=32, tie_word_embeddings=True)
    else:
        config = transformers.Qwen3MoeConfig(
            **_SIZES,
            head_dim=32,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            norm_topk_prob=True,
        )
    model = transformers.AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype))
    _lively(model)
    for name, value in model.named_parameters():
        if name.endswith("_proj.weight"):
            value.data.copy_(torch.randint(-1, 2, value.shape) * (torch.rand(1) / 16 + 0.03).to(value.dtype))
        elif name.endswith(("gate_up_proj", "down_proj")):
            scales = (torch.rand(len(value), 1, 1) / 16 + 0.03).to(value.dtype)
            value.data.copy_(torch.randint(-1, 2, value.shape) * scales)
    model.save_pretrained(folder)
    return folder


def _quantized(folder: Path, **options: Any) -> Path:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "quantization_config": {"quant_method": "bitnet", **options}}))
    return folder
