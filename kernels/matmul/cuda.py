"""The CUDA variants of matmul: shared-memory tiles for every dtype, tensor cores for the 16-bit ones."""

from __future__ import annotations

from functools import partial

import numpy as np

from tritmark.harness.spec import KernelKey, MaxSize, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.matmul.spec import MAX_K, NAMES

EDGE = 64
"""Rows and columns of the outputs of a block, in every kernel."""
TILED = {
    dtype: Kernel(
        file="matmul/tiled.cu",
        name=name,
        threads=256,
        registers=80,
        shared=2 * 16 * 68 * 4,
        capability=capability,
        defines=(("INPUT", bits), ("NAME", name)),
    )
    for dtype, name, bits, capability in (
        ("float32", "gemm_fp32", "32", (6, 1)),
        ("float16", "gemm_fp16", "16", (6, 1)),
        ("bfloat16", "gemm_bf16", "8", (8, 0)),
    )
}
WMMA = {
    dtype: Kernel(
        file="matmul/wmma.cu",
        name=name,
        threads=128,
        registers=96,
        shared=64 * 40 * 2 + 32 * 72 * 2 + 64 * 68 * 4,
        capability=capability,
        defines=(("INPUT", bits), ("NAME", name)),
    )
    for dtype, name, bits, capability in (("float16", "wmma_fp16", "16", (7, 0)), ("bfloat16", "wmma_bf16", "8", (8, 0)))
}


def _steps(kernel: Kernel, call: Call) -> tuple[Step, ...]:
    M, N, K = call.axes["M"], call.axes["N"], call.axes["K"]
    launch = call.params(kernel, -(-M // EDGE) * -(-N // EDGE))
    args = (call.inputs["a"], call.inputs["b"], call.outputs["c"], np.int32(M), np.int32(N), np.int32(K))
    return (Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args),)


def _variant(dtype: str, name: str, tier: Tier, summary: str, kernel: Kernel) -> Variant:
    key = KernelKey(DEVICE, NAMES[dtype], "none", "float32")
    return variant(key, name, tier, summary, (kernel,), partial(_steps, kernel), constraints=(MaxSize("K", MAX_K),))


VARIANTS = (
    *(_variant(dtype, "tiled", Tier.BASELINE, "64 x 64 outputs a block, 4 x 4 a thread", kernel) for dtype, kernel in TILED.items()),
    *(_variant(dtype, "wmma", Tier.OPTIMIZED, "tensor cores, 64 x 64 outputs a block", kernel) for dtype, kernel in WMMA.items()),
)
