"""Fake BitNet models in each published layout, as the formats' own libraries write them.

Codes and scales follow from a tensor's name and a seed, so that a large model is made matrix by matrix.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import gguf
import ml_dtypes
import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray
from safetensors.numpy import save_file

HF_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
I2_S, Q2_0, IQ1_BN, IQ2_BN, IQ2_BN_R4 = 36, 42, 134, 135, 335


@dataclass(frozen=True)
class Model:
    """Sizes of a model; `kv` is the width of keys and values."""

    layers: int
    width: int
    kv: int
    ffn: int
    vocabulary: int = 64
    seed: int = 0
    changed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Matrices, by name in GGUF, in which the code at this index is changed."""

    def matrices(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Name in GGUF without `.weight`, and (N, K), of each linear layer."""
        of_block = {
            "attn_q": (self.width, self.width),
            "attn_k": (self.kv, self.width),
            "attn_v": (self.kv, self.width),
            "attn_output": (self.width, self.width),
            "ffn_gate": (self.ffn, self.width),
            "ffn_up": (self.ffn, self.width),
            "ffn_down": (self.width, self.ffn),
        }
        yield from ((f"blk.{layer}.{name}", shape) for layer in range(self.layers) for name, shape in of_block.items())

    def codes(self, name: str, shape: tuple[int, int]) -> NDArray[np.int8]:
        """int8 (N, K)."""
        codes = self._rng(name).integers(-1, 2, shape, np.int8)
        if name in self.changed:
            at = self.changed[name]
            codes[at] = 1 if codes[at] < 1 else -1
        return codes

    def scale(self, name: str) -> np.float32:
        """A scale that bfloat16 and float16 hold exactly: 8 bits, some above 1."""
        return np.float32(self._rng(name + "/scale").integers(128, 256) / 128)

    def others(self) -> dict[str, NDArray[Any]]:
        """All other tensors by name in GGUF: bfloat16 norms and embeddings."""
        names = [f"blk.{layer}.{name}" for layer in range(self.layers) for name in ("attn_norm", "attn_sub_norm")]
        norms = {f"{name}.weight": self._floats(name, (self.width,)) for name in [*names, "output_norm"]}
        return {"token_embd.weight": self._floats("token_embd", (self.vocabulary, self.width)), **norms}

    def _floats(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        return self._rng(name).standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, crc32(name.encode())])


SMALL = Model(layers=2, width=256, kv=64, ffn=512)
TWO_B = Model(layers=30, width=2560, kv=640, ffn=6912, vocabulary=1024)
"""bitnet-b1.58-2B-4T: all 210 linear layers of the published shapes. A vocabulary of 128,256 would need as many bytes
as all of them."""


def i2_s(codes: NDArray[np.int8], scale: np.float32, lane: int = 32) -> NDArray[np.uint8]:
    """I2_S of bitnet.cpp by its definition: `lane` bytes hold 4 * lane weights; lane is 16 on ARM."""
    groups = (codes.reshape(-1, 4, lane) + 1).astype(np.uint8)
    body = (groups[:, 0] << 6 | groups[:, 1] << 4 | groups[:, 2] << 2 | groups[:, 3]).reshape(-1)
    return np.concatenate([body, np.array([scale], "<f4").view(np.uint8), np.zeros(28, np.uint8)])


def q2_0(codes: NDArray[np.int8], scale: np.float32) -> NDArray[np.uint8]:
    """Q2_0 of ggml by its definition: a float16 scale before the 16 bytes of 64 weights, four adjacent ones per
    byte."""
    blocks = (codes.reshape(-1, 16, 4) + 1).astype(np.uint8)
    body = blocks[..., 0] | blocks[..., 1] << 2 | blocks[..., 2] << 4 | blocks[..., 3] << 6
    return _behind(np.full(len(body), scale, "<f2"), body)


def iq1_bn(codes: NDArray[np.int8], scale: np.float32) -> NDArray[np.uint8]:
    """IQ1_BN of ik_llama.cpp by its definition: 64 weights in 13 bytes as base-3 digits; the last weight of each 16 is
    in the last byte."""
    digits = codes.reshape(-1, 4, 16).astype(np.int64) + 1
    fives = digits[:, :, :15].reshape(-1, 12, 5) @ 3 ** np.arange(5)
    values = np.concatenate([fives, (digits[:, :, 15] @ 3 ** np.arange(4))[:, None]], axis=1)
    rows = ((values * 256 + 242) // 243).astype(np.uint8).reshape(len(codes), -1)
    return _behind(np.full(len(rows), scale, "<f2"), rows)


def iq2_bn(codes: NDArray[np.int8], scale: np.float32) -> NDArray[np.uint8]:
    """IQ2_BN of ik_llama.cpp by its definition: 64 weights in 16 bytes, weights at a distance of 16 in one byte."""
    blocks = (codes.reshape(len(codes), -1, 4, 16) + 1).astype(np.uint8)
    body = blocks[:, :, 0] | blocks[:, :, 1] << 2 | blocks[:, :, 2] << 4 | blocks[:, :, 3] << 6
    return _behind(np.full(len(codes), scale, "<f4"), body)


def iq2_bn_r4(codes: NDArray[np.int8], scale: np.float32) -> NDArray[np.uint8]:
    """IQ2_BN_R4 of ik_llama.cpp by its definition: the scales of four rows, then 64 columns of all four at a time."""
    n, k = codes.shape
    fours = (codes.reshape(n // 4, 4, k // 64, 4, 4, 4) + 1).astype(np.uint8).transpose(0, 2, 3, 1, 4, 5)
    body = fours[..., 0, :] | fours[..., 1, :] << 2 | fours[..., 2, :] << 4 | fours[..., 3, :] << 6
    return _behind(np.full((n // 4, 4), scale, "<f4"), body)


def _behind(scales: NDArray[Any], body: NDArray[Any]) -> NDArray[np.uint8]:
    """Each row or block after its scales, all bytes in one axis."""
    rows = len(scales)
    parts = [scales.reshape(rows, -1).view(np.uint8), body.reshape(rows, -1)]
    return np.concatenate(parts, axis=1, dtype=np.uint8).reshape(-1)


DEFINED = {I2_S: i2_s, Q2_0: q2_0, IQ1_BN: iq1_bn, IQ2_BN: iq2_bn, IQ2_BN_R4: iq2_bn_r4}
"""Types for which no library writes tensors."""


def packed_rows(codes: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Four rows per byte, by the definition of transformers' pack_weights."""
    quarters = (codes.reshape(4, len(codes) // 4, -1) + 1).astype(np.uint8)
    found: NDArray[np.uint8] = quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6
    return found


def write_gguf(path: Path, model: Model, type: int = I2_S, *, lane: int = 32, part: int = 0) -> Path:
    """A GGUF file from GGUFWriter with the linear layers in a type of DEFINED or of the gguf package; with `part`,
    split into files of so many tensors."""
    writer = gguf.GGUFWriter(path, "bitnet-b1.58", split_max_tensors=part)
    writer.add_block_count(model.layers)
    writer.add_file_type(40)
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "a", ""])
    others = model.others()
    for name, values in others.items():
        writer.add_tensor_info(
            name, values.shape, np.dtype(np.float16), values.nbytes, raw_dtype=GGMLQuantizationType.BF16
        )
    for name, shape in model.matrices():
        # int8 stands in for a type whose shape the writer does not change.
        writer.add_tensor_info(f"{name}.weight", shape, np.dtype(np.int8), _sized(type, shape), raw_dtype=type)  # type: ignore[arg-type]
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for values in others.values():
        writer.write_tensor_data(values.view(np.uint8))
    for name, shape in model.matrices():
        codes, scale = model.codes(name, shape), model.scale(name)
        if type in DEFINED:
            options = {"lane": lane} if type == I2_S else {}
            writer.write_tensor_data(DEFINED[type](codes, scale, **options))
        else:
            kind = GGMLQuantizationType(type)
            writer.write_tensor_data(gguf.quants.quantize((codes * scale).astype(np.float32), kind))
    writer.close()
    return path


def _sized(type: int, shape: tuple[int, int]) -> int:
    """Bytes of a matrix."""
    n, k = shape
    own = {
        I2_S: n * k // 4 + 32,
        Q2_0: n * k // 64 * 18,
        IQ1_BN: n * (k // 64 * 13 + 2),
        IQ2_BN: n * (k // 4 + 4),
        IQ2_BN_R4: n * (k // 4 + 4),
    }
    if type in own:
        return own[type]
    return n * k // 256 * gguf.constants.GGML_QUANT_SIZES[GGMLQuantizationType(type)][1]


def hf_name(name: str) -> str:
    """The name on Hugging Face of a GGUF name without `.weight`."""
    if not name.startswith("blk."):
        return {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}[name]
    _, layer, rest = name.split(".")
    norms = {"attn_norm": "input_layernorm", "attn_sub_norm": "self_attn.attn_sub_norm"}
    return f"model.layers.{layer}.{(HF_NAMES | norms)[rest]}"


def packed_tensors(model: Model, *, dtype: Any = ml_dtypes.bfloat16, divide: bool = False) -> dict[str, NDArray[Any]]:
    """The tensors of transformers' BitNet models: uint8 `weight`, and `weight_scale`, by which AutoBitLinear multiplies
    and BitLinear divides."""
    tensors = {f"{hf_name(name.removesuffix('.weight'))}.weight": values for name, values in model.others().items()}
    for name, shape in model.matrices():
        tensors[f"{hf_name(name)}.weight"] = packed_rows(model.codes(name, shape))
        scale = 1 / model.scale(name) if divide else model.scale(name)
        tensors[f"{hf_name(name)}.weight_scale"] = np.array([scale], dtype)
    return tensors


def write_safetensors(path: Path, model: Model, **options: Any) -> Path:
    """One file of them, written by the safetensors library."""
    save_file(packed_tensors(model, **options), path, metadata={"format": "pt"})
    return path


def write_shards(folder: Path, model: Model, count: int = 3) -> Path:
    """A folder of shards with the relevant part of the config.json of bitnet-b1.58-2B-4T."""
    folder.mkdir()
    names = sorted(tensors := packed_tensors(model))
    for number in range(count):
        part = {name: tensors[name] for name in names[number::count]}
        save_file(part, folder / f"model-{number + 1:05}-of-{count:05}.safetensors", metadata={"format": "pt"})
    quantization = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
    (folder / "config.json").write_text(json.dumps({"model_type": "bitnet", "quantization_config": quantization}))
    return folder


def write_exact(path: Path, model: Model) -> Path:
    """bf16 code times scale, which is exactly ternary."""
    return _floats(path, model, noise=0.0)


def write_masters(path: Path, model: Model) -> Path:
    """bf16 master weights: code times scale plus noise, which absmean removes."""
    return _floats(path, model, noise=0.05)


def _floats(path: Path, model: Model, noise: float) -> Path:
    tensors = {f"{hf_name(name.removesuffix('.weight'))}.weight": values for name, values in model.others().items()}
    for name, shape in model.matrices():
        added = noise * model._rng(name + "/noise").uniform(-1, 1, shape)
        tensors[f"{hf_name(name)}.weight"] = ((model.codes(name, shape) + added) * model.scale(name)).astype(
            ml_dtypes.bfloat16
        )
    save_file(tensors, path, metadata={"format": "pt"})
    return path
