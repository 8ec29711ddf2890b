"""Shapes of every op whose inputs can be exchanged piece by piece, and of those where only stretches can."""

from __future__ import annotations

from tritmark.harness.providers import load

OPS = load(()).ops
SHAPES: list[tuple[str, str, str, dict[str, int]]] = [
    ("i2s_quantize", "none", "int8", {"n": 5001}),
    ("i2s_dequantize", "none", "float32", {"n": 70}),
    ("float_narrow", "none", "float16", {"n": 3000}),
    ("float_widen", "bfloat16", "float32", {"n": 3000}),
    ("ternary_quantize", "none", "int8", {"n": 4100, "block": 32}),
    ("ternary_quantize", "i2_s_x86", "uint8", {"n": 4100, "block": 96}),
    ("ternary_quantize", "row16", "uint8", {"n": 4100, "block": 256}),
    ("ternary_quantize", "tq2_0", "uint8", {"n": 4096, "block": 256}),
    ("activation_quantize", "none", "int8", {"M": 7, "K": 65}),
    ("activation_quantize", "float16", "int8", {"M": 7, "K": 65}),
    ("hadamard_quantize", "none", "int8", {"M": 7, "K": 192, "block": 64}),
    ("hadamard_transform", "bfloat16", "float16", {"M": 7, "K": 256, "block": 128}),
    ("ternary_matmul", "tile64", "float32", {"M": 2, "N": 300, "K": 130}),
    ("ternary_matmul", "tile80", "float32", {"M": 2, "N": 300, "K": 130}),
    ("ternary_matmul", "row16", "int32", {"M": 1, "N": 200, "K": 77}),
    ("ternary_matmul", "tq2_0", "float32", {"M": 2, "N": 200, "K": 512}),
    ("ternary_matmul", "tl1", "float32", {"M": 2, "N": 320, "K": 200}),
    ("ternary_matmul", "row16_g32", "float32", {"M": 2, "N": 200, "K": 512}),  # scales behind all codes
    ("ternary_matmul", "row16_g256", "float32", {"M": 1, "N": 320, "K": 512}),
    ("ternary_matmul_bf16", "row16_g128", "float16", {"M": 2, "N": 300, "K": 256}),
    ("ternary_matmul_fp16", "tile80", "float32", {"M": 2, "N": 300, "K": 130}),
    ("ternary_matmul", "gptq_2", "float32", {"M": 2, "N": 256, "K": 256}),  # rows are columns of words
    ("matmul_fp32", "none", "float32", {"M": 5, "N": 33, "K": 20}),
]
STRETCHES: list[tuple[str, str, str, dict[str, int]]] = [
    ("absmean_quantize", "none", "int8", {"n": 5000}),
    ("activation_quantize", "none", "int8", {"M": 1, "K": 700}),
    ("ternary_matmul", "tl2", "int32", {"M": 2, "N": 320, "K": 320}),
    ("ternary_matmul", "tl1", "float32", {"M": 1, "N": 1216, "K": 512}),  # 16 of its units have another layout
    ("ternary_matmul", "hf_pack", "float32", {"M": 2, "N": 640, "K": 256}),  # a byte has four distant rows
    ("ternary_quantize", "none", "int8", {"n": 3000, "block": 5000}),
]
