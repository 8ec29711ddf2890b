"""Kernels and shapes of the history, as parameters of asv: an op as OP/FORMAT/DTYPE, a variant as DEVICE:NAME, a shape
as its axes."""

from __future__ import annotations

import os

from .isas import ISAS

DRY = "TRITMARK_HISTORY_DRY" in os.environ
"""Set to check only that every benchmark runs, without keeping figures. Shapes are then small, since most of the time
is spent on making large arrays."""

VECTOR_OPS = (
    "i2s_quantize/none/int8",
    "i2s_dequantize/none/float32",
    "absmean_quantize/none/int8",
    "ternary_quantize/none/int8",
    "ternary_quantize/i2_s_x86/uint8",
    "activation_quantize/none/int8",
    "activation_quantize/float16/int8",
    "activation_quantize/bfloat16/int8",
)
SIZES = (1 << 12, 1 << 15) if DRY else (1 << 16, 1 << 21)
"""Numbers of values: within the caches, and beyond."""

PRODUCT_OPS = (
    "ternary_matmul/tile64/int32",
    "ternary_matmul/tile64/float32",
    "ternary_matmul/tile64/bfloat16",
    "ternary_matmul/i2_s_x86/int32",
    "ternary_matmul/i2_s_x86/float32",
    "ternary_matmul/i2_s_x86/bfloat16",
    "ternary_matmul/tq2_0/float32",
    "ternary_matmul/tq2_0/bfloat16",
    "ternary_matmul/iq2_bn_r4/int32",
    "ternary_matmul/iq2_bn_r4/float32",
    "ternary_matmul/iq2_bn_r4/bfloat16",
    "ternary_matmul/tl1/int32",
    "ternary_matmul/tl1/float32",
    "ternary_matmul/tl1/bfloat16",
    "ternary_matmul/tl2/int32",
    "ternary_matmul/tl2/float32",
    "ternary_matmul/tl2/bfloat16",
    "ternary_matmul/q2_0/float32",
    "ternary_matmul/q2_0/bfloat16",
    "ternary_matmul/tq1_0/float32",
    "ternary_matmul/tq1_0/bfloat16",
    "ternary_matmul/tile80/int32",
    "ternary_matmul/tile80/float32",
    "ternary_matmul/tile80/bfloat16",
)
LAYERS = ("M=1 N=320 K=768", "M=4 N=320 K=768") if DRY else ("M=1 N=2560 K=6912", "M=32 N=2560 K=2560")
"""Layers of bitnet-b1.58-2B-4T: one token, and a batch."""

CPU = tuple(f"cpu:{isa}" for isa in ISAS)

CUDA_VECTOR_OPS = (
    "i2s_quantize/none/int8",
    "i2s_quantize/float16/int8",
    "i2s_quantize/bfloat16/int8",
    "i2s_dequantize/none/float32",
    "absmean_quantize/none/int8",
    "ternary_quantize/none/int8",
    "ternary_quantize/float16/int8",
    "ternary_quantize/bfloat16/int8",
    "ternary_quantize/i2_s_x86/uint8",
    "ternary_quantize/row16/uint8",
    "ternary_quantize/tq2_0/uint8",
    "activation_quantize/none/int8",
    "activation_quantize/float16/int8",
    "activation_quantize/bfloat16/int8",
    "float_narrow/none/float16",
    "float_narrow/none/bfloat16",
    "float_widen/float16/float32",
    "float_widen/bfloat16/float32",
    "pack_codes/i2_s_x86/uint8",
    "pack_codes/row16/uint8",
    "pack_codes/tq2_0/uint8",
    "unpack_codes/i2_s_x86/int8",
    "unpack_codes/row16/int8",
    "unpack_codes/tq2_0/int8",
)
CUDA_VECTOR = tuple(f"cuda:{name}" for name in ("v1", "vector", "v1_warp", "tuned", "split"))
CUDA_SIZES = (1 << 25,)

CUDA_PRODUCT_OPS = (
    "ternary_matmul/row16/int32",
    "ternary_matmul/row16/float32",
    "ternary_matmul/row16/bfloat16",
    "ternary_matmul/row16/float16",
    "ternary_matmul/gpu_int2/int32",
    "ternary_matmul/gpu_int2/float32",
    "ternary_matmul/gpu_int2/bfloat16",
    "ternary_matmul/gpu_int2/float16",
    "ternary_linear_fp32/row16/float32",
    "ternary_linear_fp32/row16/bfloat16",
    "ternary_linear_fp32/row16/float16",
    "ternary_linear_fp16/row16/float32",
    "ternary_linear_fp16/row16/bfloat16",
    "ternary_linear_fp16/row16/float16",
    "ternary_linear_bf16/row16/float32",
    "ternary_linear_bf16/row16/bfloat16",
    "ternary_linear_bf16/row16/float16",
    "ternary_matmul/tq2_0/float32",
    "ternary_matmul/tq2_0/bfloat16",
    "ternary_matmul/tq2_0/float16",
    "ternary_matmul/iq2_bn/int32",
    "ternary_matmul/iq2_bn/float32",
    "ternary_matmul/iq2_bn/bfloat16",
    "ternary_matmul/iq2_bn/float16",
    "matmul_fp32/none/float32",
    "matmul_fp16/none/float32",
    "matmul_bf16/none/float32",
    "ternary_matmul_bf16/row16/float32",
    "ternary_matmul_bf16/row16/bfloat16",
    "ternary_matmul_bf16/row16/float16",
    "ternary_matmul_fp16/row16/float32",
    "ternary_matmul_fp16/row16/bfloat16",
    "ternary_matmul_fp16/row16/float16",
)
CUDA_PRODUCT = tuple(
    f"cuda:{name}"
    for name in ("tiled", "dp4a", "gemv_dp4a", "gemv", "wmma", "mma", "gemm", "ffma", "wgmma", "v1", "pair", "fused")
)

PARAMETERS = ("op", "variant", "shape")

SMALL_VECTOR = 100_003
_SMALL_PRODUCT = "M=3 N=130 K=257"
"""Multiples of nothing: kernels fail there first, and the reference is fast."""
_SMALL_BLOCKS = {
    "i2_s_x86": "M=3 N=130 K=384",
    "tq2_0": "M=3 N=130 K=768",
    "iq2_bn": "M=3 N=130 K=320",
    "iq2_bn_r4": "M=3 N=132 K=320",
    "tl1": "M=3 N=160 K=264",
    "tl2": "M=3 N=160 K=320",
    "q2_0": "M=3 N=130 K=320",
    "tq1_0": "M=3 N=130 K=768",
    "gpu_int2": "M=3 N=144 K=288",
}
"""Formats with rows in blocks of 64, 128 or 256, with four interleaved rows in blocks of 64, or with tiles."""


def vector_shape(op: str, n: int) -> str:
    """The axes of `op` for about `n` values: rows of 2560 if it has rows, blocks of 128 if it has blocks."""
    name = op.split("/", maxsplit=1)[0]
    if name == "activation_quantize":
        return f"M={max(1, n // 2560)} K=2560"
    if name in {"pack_codes", "unpack_codes"}:
        return f"N={max(1, n // 2560)} K=2560"
    return f"n={n} block=128" if name == "ternary_quantize" else f"n={n}"


def small_product(op: str) -> str:
    """The axes of a small product."""
    return _SMALL_BLOCKS.get(op.split("/")[1], _SMALL_PRODUCT)
