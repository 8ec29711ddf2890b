"""The ternary model families of 2026, made small: the files of each, and the codes and scales in them.

Bytes follow from the definitions of the formats, not from tritmark's packers. `python model_families.py FOLDER` writes
all of them.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

sys.path.append(str(Path(__file__).parent))
made_up = import_module("made_up_models")

Truth = tuple[NDArray[np.int8], NDArray[np.float32] | None]
"""Codes (N, K) or (E, N, K), and scales (N, groups) or (E, N, groups); None for scales that a rule finds."""
F32, BF16, UINT32, STRING = 0, 30, 4, 8
WIDTH, FFN, WORDS, EXPERTS, USED = 256, 512, 48, 4, 2
BLOCK = {
    "attn_q": ("self_attn.q_proj", (WIDTH, WIDTH)),
    "attn_v": ("self_attn.v_proj", (64, WIDTH)),
    "ffn_up": ("mlp.up_proj", (FFN, WIDTH)),
    "ffn_down": ("mlp.down_proj", (WIDTH, FFN)),
}
"""The linear layers of a dense block: the name in GGUF, the name on Hugging Face, (N, K)."""
OF_EXPERTS = {"gate": (FFN, WIDTH), "up": (FFN, WIDTH), "down": (WIDTH, FFN)}


@dataclass(frozen=True)
class Made:
    """The files of one model."""

    path: Path
    truth: Mapping[str, Truth] = field(default_factory=dict)
    """By the name of the tensor with the codes."""
    not_ternary: tuple[str, ...] = ()
    """Tensors of quantized modules that are listed as not ternary."""
    refused: str = ""
    """A part of the error, if the model is refused."""
    reads: Mapping[str, float] = field(default_factory=dict)
    """How many products a token needs with these experts; 1 for all other matrices."""


def ternary(name: str, shape: tuple[int, ...], group: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Codes, and scales that bfloat16 and float16 hold."""
    rng = np.random.default_rng(crc32(name.encode()))
    scales: NDArray[np.float32] = rng.integers(128, 256, (*shape[:-1], shape[-1] // group)).astype(np.float32)
    codes: NDArray[np.int8] = rng.integers(-1, 2, shape, np.int8)
    return codes, scales * np.float32(1 / 4096)


def values(codes: NDArray[np.int8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """Codes times scales."""
    found: NDArray[np.float32] = np.repeat(scales, codes.shape[-1] // scales.shape[-1], axis=-1)
    found *= codes
    return found


def floats(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """bfloat16 of a normal distribution."""
    rng = np.random.default_rng(crc32(name.encode()))
    return rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)


def fields(codes: NDArray[np.int8], added: int = 1) -> NDArray[np.uint8]:
    """Four fields code + `added` per byte, the first in the lowest bits."""
    four = (codes.reshape(*codes.shape[:-1], -1, 4) + added).astype(np.uint8)
    found: NDArray[Any] = four[..., 0] | four[..., 1] << 2 | four[..., 2] << 4 | four[..., 3] << 6
    return found


# ---- GGUF


def block_bytes(codes: NDArray[np.int8], scales: NDArray[np.float32]) -> bytes:
    """Q2_0 and PQ2_0: a float16 scale before the fields of each group."""
    body = fields(codes).reshape(scales.size, -1)
    return np.concatenate([scales.reshape(-1, 1).astype("<f2").view(np.uint8), body], axis=1).tobytes()


def ptq1_0(codes: NDArray[np.int8], scales: NDArray[np.float32]) -> bytes:
    """PTQ1_0: base-3 digits of 128 weights, and a float16 scale behind them."""
    digits = codes.reshape(-1, 128).astype(np.int64) + 1
    parts = [digits[:, :80].reshape(-1, 5, 16), digits[:, 80:120].reshape(-1, 5, 8), digits[:, 120:].reshape(-1, 4, 2)]
    body = []
    for part in parts:
        powers = 3 ** np.arange(4, 4 - part.shape[1], -1)
        body.append((np.einsum("bdw,d->bw", part, powers) * 256 + 242) // 243)
    joined = np.concatenate(body, axis=1).astype(np.uint8)
    return np.concatenate([joined, scales.reshape(-1, 1).astype("<f2").view(np.uint8)], axis=1).tobytes()


def gguf(path: Path, tensors: list[tuple[str, tuple[int, ...], int, bytes]], facts: Mapping[str, int | str]) -> Path:
    """A GGUF file of tensors as (name, shape in NumPy's order, type, bytes)."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts))
    for key, value in facts.items():
        raw = text(value) if isinstance(value, str) else struct.pack("<I", value)
        head += text(key) + struct.pack("<I", STRING if isinstance(value, str) else UINT32) + raw
    data = b""
    for name, shape, kind, raw in tensors:
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


def norm(name: str) -> tuple[str, tuple[int, ...], int, bytes]:
    return name, (WIDTH,), F32, np.ones(WIDTH, "<f4").tobytes()


def dense_gguf(path: Path, kind: int, group: int, encode: Callable[..., bytes], file_type: int) -> Made:
    """Bonsai: all linear layers, the embedding and the head in one type."""
    names = {f"blk.0.{name}.weight": shape for name, (_, shape) in BLOCK.items()}
    names |= {"token_embd.weight": (WORDS, WIDTH), "output.weight": (WORDS, WIDTH)}
    truth = {name: ternary(name, shape, group) for name, shape in names.items()}
    tensors = [(name, codes.shape, kind, encode(codes, scales)) for name, (codes, scales) in truth.items()]
    facts: dict[str, int | str] = {"general.architecture": "qwen3", "general.file_type": file_type}
    return Made(gguf(path, [*tensors, norm("output_norm.weight")], facts), truth)


def experts_gguf(path: Path, architecture: str) -> Made:
    """Experts in 3-D tensors of Q2_0, a router of floats, and a shared expert."""
    shapes: dict[str, tuple[int, ...]] = {
        f"blk.0.ffn_{part}_exps.weight": (EXPERTS, *shape) for part, shape in OF_EXPERTS.items()
    }
    shapes |= {"blk.0.attn_q.weight": (WIDTH, WIDTH), "blk.0.ffn_up_shexp.weight": (FFN, WIDTH)}
    truth = {name: ternary(name, shape, 64) for name, shape in shapes.items()}
    tensors = [(name, codes.shape, 42, block_bytes(codes, scales)) for name, (codes, scales) in truth.items()]
    router = "blk.0.ffn_gate_inp.weight"
    tensors.append((router, (EXPERTS, WIDTH), F32, floats(router, (EXPERTS, WIDTH)).astype("<f4").tobytes()))
    facts: dict[str, int | str] = {
        "general.architecture": architecture,
        "general.file_type": 41,
        f"{architecture}.expert_count": EXPERTS,
        f"{architecture}.expert_used_count": USED,
    }
    return Made(gguf(path, tensors, facts), truth, reads={name: USED for name in shapes if "_exps" in name})


# ---- folders


def folder(path: Path, tensors: Mapping[str, NDArray[Any]], config: Mapping[str, Any]) -> Path:
    """A folder with model.safetensors and config.json."""
    path.mkdir()
    save_file(dict(tensors), path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(config))
    return path


def bitlinear(path: Path, quantization: Mapping[str, Any]) -> Made:
    """Falcon3 and Falcon-E: packed rows, and a weight_scale that the model divides by."""
    tensors, truth = {}, {}
    for name, shape in BLOCK.values():
        codes, scales = ternary(name, shape, shape[1])
        key = f"model.layers.0.{name}.weight"
        tensors[key] = made_up.packed_rows(codes)
        tensors[f"{key}_scale"] = np.array([1 / scales[0, 0]], np.float32).astype(ml_dtypes.bfloat16)
        scale = np.float32(1) / tensors[f"{key}_scale"].astype(np.float32)
        truth[key] = codes, np.broadcast_to(scale, (shape[0], 1))
    config = {"model_type": "llama", "quantization_config": {"quant_method": "bitnet", **quantization}}
    return Made(folder(path, tensors, config), truth)


def unpacked(path: Path) -> Made:
    """A packed model that was unpacked on load and saved: bf16 -1, 0 and 1 beside a weight_scale."""
    tensors, truth = {}, {}
    for name, shape in BLOCK.values():
        codes, scales = ternary(name, shape, shape[1])
        key = f"model.layers.0.{name}.weight"
        tensors[key] = codes.astype(ml_dtypes.bfloat16)
        tensors[f"{key}_scale"] = scales[0].astype(ml_dtypes.bfloat16)
        truth[key] = codes, np.broadcast_to(scales[0], (shape[0], 1))
    quantization = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
    return Made(folder(path, tensors, {"model_type": "bitnet", "quantization_config": quantization}), truth)


def exact_floats(path: Path, group: int, of_experts: bool = False) -> Made:
    """BitCPM4 and Maple: bf16 that are exactly ternary, with a scale for each group."""
    names = {f"model.layers.0.{name}.weight": shape for name, shape in BLOCK.values()}
    reads: dict[str, float] = {}
    if of_experts:
        names = {
            f"model.layers.0.mlp.experts.{expert}.{part}_proj.weight": shape
            for expert in range(EXPERTS)
            for part, shape in OF_EXPERTS.items()
        }
        reads = dict.fromkeys(names, USED / EXPERTS)
    truth = {name: ternary(name, shape, group) for name, shape in names.items()}
    tensors = {name: values(*each).astype(ml_dtypes.bfloat16) for name, each in truth.items()}
    tensors["model.embed_tokens.weight"] = floats("embedding", (WORDS, WIDTH))
    config = {"model_type": "maple", "num_experts": EXPERTS, "num_experts_per_tok": USED} if of_experts else {}
    return Made(folder(path, tensors, config), truth, reads=reads)


def four_levels(path: Path) -> Made:
    """Hy-MT with 2 bits: levels -1.5, -0.5, 0.5 and 1.5 times a scale for each group of 64."""
    tensors = {}
    for name, shape in BLOCK.values():
        _, scales = ternary(name, shape, 64)
        levels = np.random.default_rng(1).choice(np.array([-1.5, -0.5, 0.5, 1.5], np.float32), shape)
        found = levels * np.repeat(scales, 64, axis=1)
        tensors[f"model.layers.0.{name}.weight"] = found.astype(ml_dtypes.bfloat16)
    return Made(folder(path, tensors, {"model_type": "hunyuan"}), refused="levels -1.5, -0.5, 0.5 and 1.5")


def mlx_words(codes: NDArray[np.int8]) -> NDArray[np.uint32]:
    """Sixteen fields w + 1 per word."""
    return fields(codes).view("<u4")


def mlx(path: Path, of_experts: bool = False) -> Made:
    """Bonsai, or Maple with experts in 3-D tensors and with an embedding and head of 4 bits."""
    names = {f"model.layers.0.{name}": shape for name, shape in BLOCK.values()}
    stacked = {f"model.layers.0.mlp.switch_mlp.{part}_proj": (EXPERTS, *shape) for part, shape in OF_EXPERTS.items()}
    shapes: dict[str, tuple[int, ...]] = {**names, **(stacked if of_experts else {})}
    quantization: dict[str, Any] = {"group_size": 128, "bits": 2, "mode": "affine"}
    tensors: dict[str, NDArray[Any]] = {"model.norm.weight": np.ones(WIDTH, np.float16)}
    others: list[str] = []
    if of_experts:
        for name in ("model.embed_tokens", "lm_head"):
            rng = np.random.default_rng(0)
            tensors[f"{name}.weight"] = rng.integers(0, 1 << 32, (WORDS, WIDTH // 8), np.uint32)
            tensors[f"{name}.scales"] = np.full((WORDS, WIDTH // 64), 0.25, np.float16)
            tensors[f"{name}.biases"] = np.full((WORDS, WIDTH // 64), -0.25, np.float16)
            quantization[name] = {"group_size": 64, "bits": 4}
            others += [f"{name}.{each}" for each in ("weight", "scales", "biases")]
        quantization["model.layers.0.mlp.gate"] = False
        tensors["model.layers.0.mlp.gate.weight"] = floats("router", (EXPERTS, WIDTH))
    else:
        shapes |= {"model.embed_tokens": (WORDS, WIDTH), "lm_head": (WORDS, WIDTH)}
    truth = {}
    for name, shape in shapes.items():
        codes, scales = ternary(name, shape, 128)
        truth[f"{name}.weight"] = codes, scales
        dtype: Any = ml_dtypes.bfloat16 if of_experts else np.float16
        tensors |= {
            f"{name}.weight": mlx_words(codes),
            f"{name}.scales": scales.astype(dtype),
            f"{name}.biases": (-scales).astype(dtype),
        }
    config: dict[str, Any] = {"quantization": quantization, "quantization_config": quantization}
    config |= {"num_experts": EXPERTS, "num_experts_per_tok": USED} if of_experts else {}
    reads = {name: float(USED) for name in truth if "switch_mlp" in name}
    return Made(folder(path, tensors, config), truth, tuple(others), reads=reads)


def along_rows(points: NDArray[np.int8]) -> NDArray[np.int32]:
    """Zero points (N, groups) as words (N / 16, groups), 16 rows each from the lowest bits up."""
    padded = np.pad(points, ((0, -len(points) % 16), (0, 0))).astype(np.uint32)
    found: NDArray[Any] = np.zeros((len(padded) // 16, points.shape[1]), np.uint32)
    for row, each in enumerate(padded):
        found[row // 16] |= each << np.uint32(2 * (row % 16))
    return found.view(np.int32)


def gptq(path: Path, group: int | None = 128, point: int = 2, version: str = "gptq") -> Made:
    """GPTQ with 2 bits: words along K, zero points along N, and g_idx."""
    tensors: dict[str, NDArray[Any]] = {"lm_head.weight": floats("head", (WORDS, WIDTH))}
    truth: dict[str, Truth] = {}
    for name, shape in BLOCK.values():
        codes, scales = ternary(name, shape, group or shape[-1])
        key, words = f"model.layers.0.{name}", np.zeros((shape[1] // 16, shape[0]), np.uint32)
        for k in range(shape[1]):
            words[k // 16] |= (codes[:, k] + point).astype(np.uint32) << np.uint32(2 * (k % 16))
        stored = np.full(scales.shape, point - (version == "gptq"), np.int8)
        tensors |= {
            f"{key}.qweight": words.view(np.int32),
            f"{key}.qzeros": np.ascontiguousarray(along_rows(stored).T),
            f"{key}.scales": np.ascontiguousarray(scales.T, np.float16),
            f"{key}.g_idx": np.arange(shape[1], dtype=np.int32) // (group or shape[1]),
        }
        truth[f"{key}.qweight"] = codes, scales
    quantization: dict[str, Any] = {"quant_method": "gptq", "bits": 2, "group_size": group or -1}
    quantization |= {"desc_act": False, "sym": point == 2, "checkpoint_format": version}
    return Made(folder(path, tensors, {"quantization_config": quantization}), truth)


def compressed_tensors(path: Path, group: int | None, of_experts: bool = False, point: int | None = None) -> Made:
    """pack-quantized with 2 bits, and a head of floats that is ignored. `point` is the zero point of all groups."""
    shapes: dict[str, tuple[int, ...]] = {f"model.layers.0.{name}": shape for name, shape in BLOCK.values()}
    if of_experts:
        shapes = {f"model.layers.0.mlp.experts.{part}_proj": (EXPERTS, *shape) for part, shape in OF_EXPERTS.items()}
    tensors: dict[str, NDArray[Any]] = {"lm_head.weight": floats("head", (WORDS, WIDTH))}
    truth = {}
    for name, shape in shapes.items():
        codes, scales = ternary(name, shape, group or shape[-1])
        tensors[f"{name}.weight_packed"] = fields(codes, 2 + (point or 0)).view("<i4")
        if point is not None:
            stored = np.full(scales.shape, point + 2, np.int8)
            matrices = stored if of_experts else stored[np.newaxis]
            packed = np.stack([along_rows(each) for each in matrices])
            tensors[f"{name}.weight_zero_point"] = packed if of_experts else packed[0]
        tensors[f"{name}.weight_scale"] = scales.astype(ml_dtypes.bfloat16)
        tensors[f"{name}.weight_shape"] = np.array(shape, np.int64)
        truth[f"{name}.weight_packed"] = codes, scales
    weights = {"num_bits": 2, "type": "int", "symmetric": point is None, "strategy": "group" if group else "channel"}
    scheme = {"targets": ["Linear"], "weights": {**weights, "group_size": group}}
    quantization = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": scheme},
        "ignore": ["lm_head"],
        "quantization_status": "compressed",
    }
    config: dict[str, Any] = {"quantization_config": quantization}
    config |= {"num_experts": EXPERTS, "num_experts_per_tok": USED} if of_experts else {}
    reads = dict.fromkeys(truth, float(USED)) if of_experts else {}
    return Made(folder(path, tensors, config), truth, reads=reads)


# ---- ONNX


def onnx_model(
    path: Path,
    matrices: Mapping[str, tuple[NDArray[np.int8], NDArray[Any]]],
    block_size: int = 128,
    points: str = "packed",
    external: bool = False,
    **attributes: int,
) -> Path:
    """A chain of MatMulNBits with 2 bits. `points`: packed, float32, float16 or absent, where fields are code + 2."""
    onnx = import_module("onnx")
    nodes, initializers = [], []
    for name, (codes, scales) in matrices.items():
        N, K = codes.shape
        blocks = -(-K // block_size)
        added = 2 if points == "absent" else 1
        padded = np.pad(codes, ((0, 0), (0, blocks * block_size - K)))
        stored = {
            name: fields(padded, added).reshape(N, blocks, block_size // 4),
            f"{name}_scales": scales.reshape(-1),
        }
        if points == "packed":
            stored[f"{name}_zero_points"] = np.full(N * -(-blocks // 4), 0x55, np.uint8)
        elif points != "absent":
            stored[f"{name}_zero_points"] = np.ones((N, blocks), points)
        initializers += [onnx.numpy_helper.from_array(each, key) for key, each in stored.items()]
        said = {"N": N, "K": K, "bits": 2, "block_size": block_size, **attributes}
        nodes.append(
            onnx.helper.make_node(
                "MatMulNBits", [f"{name}_in", *stored], [f"{name}_out"], name=name, domain="com.microsoft", **said
            )
        )
    initializers.append(onnx.numpy_helper.from_array(np.ones(WIDTH, np.float32), "model.norm.weight"))
    graph = onnx.helper.make_graph(nodes, "g", [], [], initializers)
    model = onnx.helper.make_model(graph)
    options = {"save_as_external_data": True, "location": f"{path.name}_data", "size_threshold": 64} if external else {}
    onnx.save_model(model, str(path), **options)
    return path


def qmoe_model(
    path: Path,
    layers: Mapping[str, Truth],
    block_size: int = 128,
    points: bool = True,
    stored: Callable[[NDArray[np.int8], int], NDArray[np.uint8]] = fields,
    **attributes: int | float | str,
) -> Path:
    """A node QMoE with 2 bits over `layers`, at most three of codes (E, N, K) and scales (E, N, groups). Block size 0:
    scales (E, N). Without `points`, fields are code + 2."""
    onnx = import_module("onnx")
    places = [(2, 3, 11), (5, 6, 12), (8, 9, 13)]
    inputs: list[str] = ["x", "router", *[""] * 12]
    initializers: dict[str, Any] = {}
    for (name, (codes, scales)), (at, scale_at, points_at) in zip(layers.items(), places, strict=False):
        assert scales is not None
        initializers[name] = stored(codes, 1 if points else 2)
        initializers[f"{name}_scales"] = scales if block_size else scales[..., 0]
        inputs[at], inputs[scale_at] = name, f"{name}_scales"
        if points:
            each = scales.shape if block_size else codes.shape[:2]
            initializers[f"{name}_zero_points"] = np.full((*each[:-1], -(-each[-1] // 4)), 0x55, np.uint8)
            inputs[points_at] = f"{name}_zero_points"
    said: dict[str, Any] = {"k": USED, "expert_weight_bits": 2, **({"block_size": block_size} if block_size else {})}
    node = onnx.helper.make_node("QMoE", inputs, ["y"], name="moe", domain="com.microsoft", **{**said, **attributes})
    tensors = [onnx.numpy_helper.from_array(each, key) for key, each in initializers.items()]
    onnx.save_model(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [], tensors)), str(path))
    return path


def experts_onnx(path: Path) -> Made:
    """Experts in a node QMoE: gate and up in one tensor, and blocks of 128."""
    shapes = {"experts.gate_up": (EXPERTS, 2 * FFN, WIDTH), "experts.down": (EXPERTS, WIDTH, FFN)}
    truth: dict[str, Truth] = {name: ternary(name, shape, 128) for name, shape in shapes.items()}
    return Made(qmoe_model(path, truth, weights_prepacked=0), truth, reads=dict.fromkeys(truth, float(USED)))


def bonsai_onnx(path: Path, external: bool = True) -> Made:
    """Bonsai's export: blocks of 128, float16 scales, packed zero points of 1."""
    names = {
        f"model.layers.0.{name.replace('self_attn', 'attn')}.MatMul.weight_Q2": shape for name, shape in BLOCK.values()
    }
    names["lm_head.MatMul.weight_Q2"] = WORDS, WIDTH
    truth = {name: ternary(name, shape, 128) for name, shape in names.items()}
    stored = {name: (codes, scales.astype(np.float16)) for name, (codes, scales) in truth.items()}
    return Made(onnx_model(path, stored, external=external), truth)


# ---- BitNet b1.58 2B-4T


def bitnet(path: Path, form: str) -> Made:
    """The three published forms: master weights, packed rows, and I2_S."""
    model = made_up.SMALL
    if form == "i2_s":
        made_up.write_gguf(path, model)
    elif form == "packed":
        made_up.write_shards(path, model)
    else:
        made_up.write_masters(path, model)
    truth = {}
    for name, shape in model.matrices():
        scale = None if form == "masters" else np.full((shape[0], 1), model.scale(name), np.float32)
        key = f"{name}.weight" if form == "i2_s" else f"{made_up.hf_name(name)}.weight"
        truth[key] = model.codes(name, shape), scale
    return Made(path, truth)


FAMILIES: dict[str, Callable[[Path], Made]] = {
    "bitnet, masters": lambda at: bitnet(at / "masters.safetensors", "masters"),
    "bitnet, packed": lambda at: bitnet(at / "packed", "packed"),
    "bitnet, i2_s": lambda at: bitnet(at / "bitnet.gguf", "i2_s"),
    "bitnet, unpacked on load": lambda at: unpacked(at / "unpacked"),
    "falcon3": lambda at: bitlinear(at / "falcon3", {}),
    "falcon-e": lambda at: bitlinear(at / "falcon-e", {"linear_class": "bitlinear"}),
    "bonsai, pq2_0": lambda at: dense_gguf(at / "pq2_0.gguf", 142, 128, block_bytes, 141),
    "bonsai, ptq1_0": lambda at: dense_gguf(at / "ptq1_0.gguf", 143, 128, ptq1_0, 143),
    "bonsai, old q2_0": lambda at: dense_gguf(at / "old.gguf", 42, 128, block_bytes, 41),
    "bonsai, q2_0": lambda at: dense_gguf(at / "q2_0.gguf", 42, 64, block_bytes, 41),
    "bonsai, mlx": lambda at: mlx(at / "bonsai-mlx"),
    "bonsai, onnx": lambda at: bonsai_onnx(at / "bonsai.onnx"),
    "experts, onnx": lambda at: experts_onnx(at / "experts.onnx"),
    "maple, hf": lambda at: exact_floats(at / "maple", 64, of_experts=True),
    "maple, gguf": lambda at: experts_gguf(at / "maple.gguf", "maple"),
    "maple, mlx": lambda at: mlx(at / "maple-mlx", of_experts=True),
    "bitcpm4": lambda at: exact_floats(at / "bitcpm4", 128),
    "qwen, q2_0 experts": lambda at: experts_gguf(at / "qwen.gguf", "qwen3moe"),
    "compressed-tensors": lambda at: compressed_tensors(at / "ct", 128),
    "compressed-tensors, channels": lambda at: compressed_tensors(at / "ct-channels", None),
    "compressed-tensors, experts": lambda at: compressed_tensors(at / "ct-experts", 64, of_experts=True),
    "compressed-tensors, zero points": lambda at: compressed_tensors(at / "ct-points", 128, point=-1),
    "compressed-tensors, zero points of experts": lambda at: compressed_tensors(at / "ct-p", 64, True, point=0),
    "gptq": lambda at: gptq(at / "gptq"),
    "gptq, rows": lambda at: gptq(at / "gptq-rows", None, 1),
    "gptq, second format": lambda at: gptq(at / "gptq-v2", 64, 1, "gptq_v2"),
    "hy-mt, 2 bits": lambda at: four_levels(at / "hy-mt"),
}
"""Writes each family into a folder."""

if __name__ == "__main__":
    target = Path(sys.argv[1])
    for name, write in FAMILIES.items():
        print(f"{name}: {write(target).path}")
