"""Layouts whose original packers do not run here, one element at a time, as their projects describe them.

- MatMulNBits with bits = 2 and weight_prepacked = 1: the steps of microsoft/onnxruntime#32699; its packer needs a GPU;
- GPTQ with 2 bits: 16 rows of the transposed weights to a word, as in AutoGPTQ;
- Hugging Face, wider than the vectors of the original packer.

The vectors of TQ1_0 and TQ2_0 with a scale for each group are those of the gguf package. None of it uses tritmark's
formats. `python described_layouts.py FOLDER` writes the vectors into suites/golden.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TILE, COLUMNS, IN_WORD = 64, 8, 16


def source_row(i: int) -> int:
    """The row that moves to row i of each 64: of the map for `ldmatrix`, with an interleave of 8."""
    q, r = divmod(i, 16)
    return 2 * q + 8 * (r >> 1) + (r & 1)


def prepacked(codes: NDArray[np.int8], zero_point: int = 1) -> NDArray[np.uint8]:
    """Bytes of codes (N, K), flat. Fields are code + zero_point."""
    N, K = codes.shape
    # B is (K, N): rows are permuted within each 64.
    rows = [[int(codes[n, k]) + zero_point for n in range(N)] for k in range(K)]
    permuted = [rows[k // TILE * TILE + source_row(k % TILE)] for k in range(K)]
    # Transposed: the words of each column, 16 rows each.
    words = [[[permuted[k + e][n] for e in range(IN_WORD)] for k in range(0, K, IN_WORD)] for n in range(N)]
    # Eight columns take turns, with the words of 64 rows each.
    in_tile = TILE // IN_WORD
    interleaved = [
        words[n + column][k + word]
        for n in range(0, N, COLUMNS)
        for k in range(0, K // IN_WORD, in_tile)
        for column in range(COLUMNS)
        for word in range(in_tile)
    ]
    # In a word: the even elements, then the odd ones, from the lowest bits up.
    order = [*range(0, IN_WORD, 2), *range(1, IN_WORD, 2)]
    stored = [sum(word[e] << 2 * place for place, e in enumerate(order)) for word in interleaved]
    return np.array(stored, "<u4").view(np.uint8)


def gptq_words(codes: NDArray[np.int8], zero_point: int = 2) -> NDArray[np.uint8]:
    """The bytes of qweight (K / 16, N) of codes (N, K), flat. Fields are code + zero_point."""
    N, K = codes.shape
    words = [
        sum((int(codes[n, 16 * row + place]) + zero_point) << 2 * place for place in range(IN_WORD))
        for row in range(K // IN_WORD)
        for n in range(N)
    ]
    return np.array(words, "<u4").view(np.uint8)


def vector(seed: int, shape: tuple[int, int], block_size: int, kind: str) -> dict[str, Any]:
    """The content of a file in suites/golden."""
    rng = np.random.default_rng(seed)
    codes = np.ones(shape, np.int8) if kind == "allplus" else rng.integers(-1, 2, shape, np.int8)
    N, blocks = shape[0], shape[1] // block_size
    scales = rng.integers(1, 2048, (N, blocks)).astype(np.float32) / np.float32(1024)
    points = np.full((N, -(-blocks // 4)), 0x55, np.uint8)
    values = codes * np.repeat(scales, block_size, axis=1)
    return {
        "format": "ort_q2_sm80",
        "source": "the description of W2_A16 for SM80 in microsoft/onnxruntime#32699, one element at a time",
        "note": "not written by the original packer, which needs a GPU",
        "weights": codes,
        "packed": prepacked(codes).reshape(N, blocks, block_size // 4),
        "scales": scales,
        "zero_points": points,
        "dequant_c": values,
        "block_size": np.int64(block_size),
    }


def gptq_vector(seed: int, shape: tuple[int, int]) -> dict[str, Any]:
    """The content of a file in suites/golden."""
    codes = np.random.default_rng(seed).integers(-1, 2, shape, np.int8)
    return {
        "format": "gptq_2",
        "source": "the description of qweight in AutoGPTQ's QuantLinear.pack, one element at a time",
        "note": "not written by the original packer; zero point 2",
        "weights": codes,
        "packed": gptq_words(codes).reshape(shape[1] // IN_WORD, 4 * shape[0]),
    }


def hf_vector(shape: tuple[int, int]) -> dict[str, Any]:
    """Wide rows: row n is the field at place n // (N / 4) of packed row n % (N / 4)."""
    codes = np.random.default_rng(shape[1]).integers(-1, 2, shape, np.int8)
    rows = shape[0] // 4
    packed = [
        [sum((int(codes[row + place * rows, k]) + 1) << 2 * place for place in range(4)) for k in range(shape[1])]
        for row in range(rows)
    ]
    return {
        "format": "hf_pack",
        "source": "the description of pack_weights in transformers, one element at a time",
        "note": "not written by the original packer",
        "weights": codes,
        "packed": np.array(packed, np.uint8),
    }


def tq_vector(name: str) -> dict[str, Any]:
    """Rows of three blocks with other scales, which the gguf package packs."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    rng = np.random.default_rng(len(name))
    codes = rng.integers(-1, 2, (4, 768), np.int8)
    scales = rng.integers(1, 2048, (4, 3)).astype(np.float32) / np.float32(1024)
    x = codes * np.repeat(scales, 256, axis=1)
    packed = quantize(x, GGMLQuantizationType[name.upper()])
    return {
        "format": name,
        "source": "PyPI gguf 0.19.0, gguf/quants.py, quantize and dequantize",
        "note": "another scale for each block",
        "weights": codes,
        "scales": scales,
        "x": x,
        "packed": packed,
        "dequant_c": dequantize(packed, GGMLQuantizationType[name.upper()]),
    }


VECTORS = {
    "k128_b64": (1, (128, 128), 64, "random"),
    "k384_b128": (2, (128, 384), 128, "random"),
    "allplus_b64": (3, (128, 64), 64, "allplus"),
}

if __name__ == "__main__":
    for name, arguments in VECTORS.items():
        np.savez_compressed(Path(sys.argv[1]) / f"ort_q2_sm80_{name}.npz", **vector(*arguments))
    for name, shape in {"k128": (5, 128), "k336": (32, 336)}.items():
        np.savez_compressed(Path(sys.argv[1]) / f"gptq_2_{name}.npz", **gptq_vector(len(name) + shape[1], shape))
    np.savez_compressed(Path(sys.argv[1]) / "hf_wide.npz", **hf_vector((8, 96)))
    for name in ("tq1_0", "tq2_0"):
        np.savez_compressed(Path(sys.argv[1]) / f"{name}_groups.npz", **tq_vector(name))
