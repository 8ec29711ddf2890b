"""Small models of transformers with random ternary weights, written as their makers publish them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def bitnet_folder(folder: Path, *, dtype: str = "bfloat16") -> Path:
    """A folder in the form of bitnet-b1.58-2B-4T: packed weights beside the value of code 1."""
    import torch
    import transformers
    from transformers.integrations import bitnet

    config = transformers.BitNetConfig(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    model = transformers.BitNetForCausalLM(config).to(getattr(torch, dtype))
    state: dict[str, Any] = model.state_dict()
    for name, value in list(state.items()):
        if name.endswith("_proj.weight"):
            state[name] = bitnet.pack_weights(torch.randint(-1, 2, value.shape))
            state[f"{name}_scale"] = (torch.rand(1) + 0.5).to(value.dtype)
    model.save_pretrained(folder, state_dict=state)
    path = folder / "config.json"
    quantization = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": quantization}))
    return folder
