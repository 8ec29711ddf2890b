"""Made-up whole models at any shape, with random ternary weights: as folders of transformers and as GGUF files.

Codes and scales follow from a tensor's name and a seed: a folder and a file of one model have the same weights, and a
large model is written tensor by tensor. No network and no published weights are needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import gguf
import ml_dtypes
import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from tritmark.harness.providers import installed
from tritmark.harness.weights.gguf_types import number_of
from tritmark.harness.weights.published_names import hf_name

ACTS = {"bitnet-b1.58": "relu2", "llama": "silu", "qwen2": "silu", "qwen3": "silu", "qwen3moe": "silu"}
"""The activation function of each architecture, by its name in GGUF."""
_CLASSES = {
    "bitnet-b1.58": ("bitnet", "BitNetForCausalLM"),
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "qwen3moe": ("qwen3_moe", "Qwen3MoeForCausalLM"),
}
"""model_type and class in transformers."""
_SLAB = 1 << 22
"""Codes that are drawn at a time."""


@dataclass(frozen=True)
class WholeModel:
    """Sizes of a model."""

    architecture: str
    """Its name in GGUF."""
    layers: int
    hidden: int
    intermediate: int
    heads: tuple[int, int, int]
    """Of queries, of keys and values, and the width of one."""
    vocabulary: int
    tied: bool
    """Whether the head is the embedding."""
    rope_theta: float = 10_000.0
    eps: float = 1e-5
    context: int = 4096
    group: int = 0
    """Weights with one scale; 0 for one scale for the matrix."""
    experts: tuple[int, int] = (0, 0)
    """All, and used ones."""
    seed: int = 0

    def linears(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Name in GGUF without `.weight`, and (N, K) or (E, N, K), of each ternary matrix of the blocks."""
        queries, keys, width = self.heads
        of_attention = {
            "attn_q": (queries * width, self.hidden),
            "attn_k": (keys * width, self.hidden),
            "attn_v": (keys * width, self.hidden),
            "attn_output": (self.hidden, queries * width),
        }
        ffn = {
            "ffn_gate": (self.intermediate, self.hidden),
            "ffn_up": (self.intermediate, self.hidden),
            "ffn_down": (self.hidden, self.intermediate),
        }
        if self.experts[0]:
            ffn = {f"{name}_exps": (self.experts[0], *shape) for name, shape in ffn.items()}  # type: ignore[misc]
        for layer in range(self.layers):
            yield from ((f"blk.{layer}.{name}", shape) for name, shape in (of_attention | ffn).items())

    def norms(self) -> Iterator[tuple[str, int]]:
        """Name in GGUF without `.weight`, and size, of each norm."""
        per_block = {"attn_norm": self.hidden, "ffn_norm": self.hidden}
        if self.architecture == "bitnet-b1.58":
            per_block |= {"attn_sub_norm": self.hidden, "ffn_sub_norm": self.intermediate}
        if self.architecture.startswith("qwen3"):
            per_block |= {"attn_q_norm": self.heads[2], "attn_k_norm": self.heads[2]}
        for layer in range(self.layers):
            yield from ((f"blk.{layer}.{name}", size) for name, size in per_block.items())
        yield "output_norm", self.hidden

    def codes(self, name: str, shape: tuple[int, ...]) -> NDArray[np.int8]:
        """int8 of -1, 0 and 1."""
        return np.concatenate([part for _, part in self.slabs(name, shape)]).reshape(shape)

    def slabs(self, name: str, shape: tuple[int, ...]) -> Iterator[tuple[slice, NDArray[np.int8]]]:
        """The codes in slabs of rows (rows, K), so that those of an embedding need little memory."""
        columns, count = shape[-1], int(np.prod(shape[:-1]))
        rng, step = self._rng(name), max(1, _SLAB // columns)
        for at in range(0, count, step):
            rows = slice(at, min(count, at + step))
            yield rows, rng.integers(-1, 2, (rows.stop - at, columns), np.int8)

    def scales(self, name: str, shape: tuple[int, ...]) -> Any:
        """float32: one number, or of groups (..., N, K / group). float16 and bfloat16 hold them exactly, and a product
        about keeps the size of its input."""
        of = () if not self.group else (*shape[:-1], shape[-1] // self.group)
        unit = 2.0 ** round(np.log2((2 / 3 * shape[-1]) ** -0.5) - 7)
        drawn = self._rng(f"{name}/scale").integers(96, 160, of)
        return np.float32(drawn * unit)

    def norm(self, name: str, size: int) -> NDArray[np.float32]:
        """About one, in values that bfloat16 holds."""
        return (self._rng(name).integers(112, 144, size) / 128).astype(np.float32)

    def embedding(self, name: str) -> NDArray[Any]:
        """(vocabulary, hidden): bfloat16, or ternary in float16 with scales of groups."""
        shape = (self.vocabulary, self.hidden)
        out = np.empty(shape, np.float16 if self.group else ml_dtypes.bfloat16)
        rng, scales = self._rng(name), self.scales(name, shape)
        unit = 2.0 ** round(-np.log2(self.hidden) / 2 - 4)  # logits of a few units; exact in float16, too
        for rows, codes in self.slabs(name, shape):
            if self.group:
                out[rows] = codes * np.repeat(scales[rows].astype(np.float16), self.group, axis=1)
            else:
                out[rows] = np.rint(32 * rng.standard_normal(codes.shape, np.float32)) * unit
        return out

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, crc32(name.encode())])


PUBLISHED = {
    "bitnet-b1.58-2B-4T": WholeModel("bitnet-b1.58", 30, 2560, 6912, (20, 5, 128), 128256, True, 500_000.0),
    "falcon-e-3B": WholeModel("llama", 32, 2048, 13312, (16, 2, 128), 32768, False, 1_000_042.0),
    "ternary-bonsai-1.7B": WholeModel("qwen3", 28, 2048, 6144, (16, 8, 128), 151936, True, 1e6, 1e-6, 40960, group=128),
    "ternary-bonsai-8B": WholeModel("qwen3", 36, 4096, 12288, (32, 8, 128), 151936, False, 1e6, 1e-6, 40960, group=128),
}
"""Shapes of published models. Figures that models.toml does not have are those of their cards and base models."""

TINY = {
    "bitnet-b1.58": WholeModel("bitnet-b1.58", 2, 256, 512, (4, 2, 64), 320, True, 500_000.0, context=128),
    "llama": WholeModel("llama", 2, 256, 512, (4, 2, 64), 320, False, context=128),
    "qwen2": WholeModel("qwen2", 2, 256, 512, (4, 2, 64), 320, True, context=128, group=128),
    "qwen3": WholeModel("qwen3", 2, 256, 512, (4, 2, 64), 320, False, 1e6, 1e-6, 128, group=128),
    "qwen3moe": WholeModel("qwen3moe", 2, 256, 256, (4, 2, 64), 320, False, 1e6, 1e-6, 128, group=128, experts=(4, 2)),
}
"""One small model of each architecture, by its name in GGUF."""


def tiny(architecture: str, **changed: Any) -> WholeModel:
    """A small model."""
    return replace(TINY[architecture], **changed)


def configuration(model: WholeModel) -> dict[str, Any]:
    """config.json of transformers."""
    kind, name = _CLASSES[model.architecture]
    queries, keys, width = model.heads
    config: dict[str, Any] = {
        "architectures": [name],
        "model_type": kind,
        "vocab_size": model.vocabulary,
        "hidden_size": model.hidden,
        "intermediate_size": model.intermediate,
        "num_hidden_layers": model.layers,
        "num_attention_heads": queries,
        "num_key_value_heads": keys,
        "head_dim": width,
        "hidden_act": ACTS[model.architecture],
        "rms_norm_eps": model.eps,
        "rope_theta": model.rope_theta,
        "max_position_embeddings": model.context,
        "tie_word_embeddings": model.tied,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "dtype": "bfloat16" if not model.group else "float16",
    }
    if model.experts[0]:
        all_, used = model.experts
        config |= {"num_experts": all_, "num_experts_per_tok": used, "moe_intermediate_size": model.intermediate}
        config |= {"norm_topk_prob": True}
    if not model.group:
        config["quantization_config"] = {
            "quant_method": "bitnet",
            "linear_class": "autobitlinear",
            "quantization_mode": "offline",
        }
    return config


def write_folder(folder: Path, model: WholeModel) -> Path:
    """A folder of transformers, a shard for each block. Matrices with one scale are packed as in bitnet-b1.58-2B-4T,
    others are float16 code times scale."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    place: dict[str, str] = {}

    def save(name: str, tensors: dict[str, NDArray[Any]]) -> None:
        file = f"model-{name}.safetensors"
        save_file(tensors, folder / file, metadata={"format": "pt"})
        place.update(dict.fromkeys(tensors, file))

    heads = ["token_embd", *([] if model.tied else ["output"])]
    half = np.float16 if model.group else ml_dtypes.bfloat16
    for name in heads:
        save(name, {hf_name(f"{name}.weight"): model.embedding(name)})
    for layer in range(model.layers):
        own: dict[str, NDArray[Any]] = {}
        for name, shape in model.linears():
            if name.startswith(f"blk.{layer}."):
                own |= _linear(model, name, shape)
        for name, size in model.norms():
            if name.startswith(f"blk.{layer}."):
                own[hf_name(f"{name}.weight")] = model.norm(name, size).astype(half)
        if model.experts[0]:
            own[f"model.layers.{layer}.mlp.gate.weight"] = _router(model, layer).astype(half)
        if model.architecture == "qwen2":
            own |= {hf_name(f"{name}.bias"): values.astype(half) for name, values in _biases(model, layer)}
        save(f"block-{layer}", own)
    save("norm", {"model.norm.weight": model.norm("output_norm", model.hidden).astype(half)})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": place}))
    (folder / "config.json").write_text(json.dumps(configuration(model), indent=1))
    write_tokenizer(folder)
    return folder


def _linear(model: WholeModel, name: str, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    codes, scales = model.codes(name, shape), model.scales(name, shape)
    known = hf_name(f"{name}.weight")
    if not model.group:
        packed = installed().formats["hf_pack"].pack(codes, np.float32(1), tail="error")
        return {known: packed, f"{known}_scale": np.array([scales], ml_dtypes.bfloat16)}
    floats = (codes * np.repeat(scales, model.group, axis=-1)).astype(np.float16)
    if not model.experts[0] or not name.endswith("_exps"):
        return {known: floats}
    # transformers publishes experts one by one, and stacks them when it loads them.
    layer, part = name.split(".")[1], name.removesuffix("_exps").rpartition("_")[2]
    return {f"model.layers.{layer}.mlp.experts.{number}.{part}_proj.weight": one for number, one in enumerate(floats)}


def _router(model: WholeModel, layer: int) -> NDArray[np.float32]:
    shape = model.experts[0], model.hidden
    return model.codes(f"blk.{layer}.ffn_gate_inp", shape) * np.float32(1 / 16)


def _biases(model: WholeModel, layer: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for name, shape in model.linears():
        if name.startswith(f"blk.{layer}.") and name.rpartition("_")[2] in {"q", "k", "v"}:
            yield name, model.codes(f"{name}/bias", (1, shape[0]))[0] * np.float32(1 / 8)


def byte_characters() -> list[str]:
    """The 256 characters of byte-level tokenizers."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of single bytes, for any vocabulary of 258 tokens or more."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = {letter: at + 2 for at, letter in enumerate(byte_characters())}
    made = Tokenizer(models.BPE(vocab={"<s>": 0, "</s>": 1, **letters}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_gguf(path: Path, model: WholeModel, type: str) -> Path:
    """A GGUF file with the matrices of the blocks in the format `type`, by the package gguf. Norms are float32, and the
    embedding and the head float16, in pq2_0 and q2_0 also ternary."""
    form = installed().formats[{"i2_s": "i2_s_x86"}.get(type, type)]
    number = number_of(type)
    assert number is not None
    writer = gguf.GGUFWriter(path, model.architecture)
    _write_keys(writer, model)
    pieces: list[tuple[str, tuple[int, ...], int]] = []

    def add(name: str, shape: tuple[int, ...], nbytes: int, kind: int) -> None:
        # int8 stands in for a type whose shape the writer does not change.
        raw: Any = kind
        writer.add_tensor_info(f"{name}.weight", shape, np.dtype(np.int8), nbytes, raw_dtype=raw)
        pieces.append((name, shape, kind))

    whole = (model.vocabulary, model.hidden)
    for name in ("token_embd", *(() if model.tied else ("output",))):
        ternary = bool(model.group) and type in {"pq2_0", "q2_0"}
        nbytes = form.packed_bytes(whole) if ternary else 2 * model.vocabulary * model.hidden
        add(name, whole, nbytes, number if ternary else int(GGMLQuantizationType.F16))
    for name, shape in model.linears():
        matrix = (shape[-2], shape[-1])
        add(name, shape, form.packed_bytes(matrix) * (shape[0] if len(shape) == 3 else 1), number)
    for name, size in model.norms():
        add(name, (size,), 4 * size, int(GGMLQuantizationType.F32))
    others: list[NDArray[np.float32]] = []
    for layer in range(model.layers):
        if model.experts[0]:
            others.append(_router(model, layer))
            writer.add_tensor_info(
                f"blk.{layer}.ffn_gate_inp.weight", others[-1].shape, others[-1].dtype, others[-1].nbytes
            )
        if model.architecture == "qwen2":
            for name, values in _biases(model, layer):
                others.append(values)
                writer.add_tensor_info(f"{name}.bias", values.shape, values.dtype, values.nbytes)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, shape, kind in pieces:
        writer.write_tensor_data(_stored(model, form, name, shape, kind))
    for values in others:
        writer.write_tensor_data(values)
    writer.close()
    return path


def _stored(model: WholeModel, form: Any, name: str, shape: tuple[int, ...], kind: int) -> NDArray[Any]:
    if kind == GGMLQuantizationType.F32:
        return model.norm(name, shape[0])
    if kind == GGMLQuantizationType.F16:
        return model.embedding(name).astype(np.float16)
    scales = model.scales(name, shape)
    if name in {"token_embd", "output"}:
        slabs = model.slabs(name, shape)
        return np.concatenate([_packed(form, codes, scales[rows]) for rows, codes in slabs])
    codes = model.codes(name, shape)
    if model.architecture == "llama" and name.endswith(("attn_q", "attn_k")):
        codes = _interleaved(codes, model.heads[0] if name.endswith("q") else model.heads[1])
    if len(shape) == 3:
        return np.concatenate([_packed(form, *each) for each in zip(codes, scales, strict=True)])
    return _packed(form, codes, scales)


def _packed(form: Any, codes: NDArray[np.int8], scales: Any) -> NDArray[np.uint8]:
    """The bytes of a matrix, with the same scales at each place where the format has one."""
    shape = (codes.shape[0], codes.shape[1])
    wanted = form.scale_shape(shape)
    if np.ndim(scales) == 2:
        scales = np.repeat(scales, wanted[1] // scales.shape[1], axis=1)
    elif wanted:
        scales = np.full(wanted, scales, np.float32)
    found: NDArray[np.uint8] = form.pack(codes, scales, tail="error").reshape(-1)
    return found


def _interleaved(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """The rows of q or k as llama.cpp's converter for Llama stores them: the two halves of a head interleaved."""
    halves = rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def _write_keys(writer: gguf.GGUFWriter, model: WholeModel) -> None:
    queries, keys, width = model.heads
    writer.add_context_length(model.context)
    writer.add_embedding_length(model.hidden)
    writer.add_block_count(model.layers)
    writer.add_feed_forward_length(model.intermediate)
    writer.add_head_count(queries)
    writer.add_head_count_kv(keys)
    writer.add_layer_norm_rms_eps(model.eps)
    writer.add_rope_freq_base(model.rope_theta)
    writer.add_vocab_size(model.vocabulary)
    if model.architecture.startswith("qwen3"):
        writer.add_key_length(width)
        writer.add_value_length(width)
    else:
        writer.add_rope_dimension_count(width)
    if model.experts[0]:
        writer.add_expert_count(model.experts[0])
        writer.add_expert_used_count(model.experts[1])
        writer.add_expert_feed_forward_length(model.intermediate)
    letters = byte_characters()
    tokens = ["<s>", "</s>", *letters, "ab"]
    unused = [f"<|unused {at}|>" for at in range(model.vocabulary - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens + unused)
    kinds = [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (len(tokens) - 2)
    writer.add_token_types(kinds + [gguf.TokenType.UNUSED] * len(unused))
    writer.add_token_merges(["a b"])  # llama.cpp refuses byte-level tokenizers without merges
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
