"""The CUDA variants of matmul: shared-memory tiles for every dtype, tensor cores for the 16-bit ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from tritmark.harness.spec import KernelKey, MaxSize, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, Steps, variant
from tritmark.kernels.matmul.spec import MAX_K, NAMES

THREADS = 256
"""Of a block of `tiled`."""
EDGE = 64
"""Rows and columns of the outputs of a block of `tiled`."""
TILED = {
    dtype: Kernel(
        file="matmul/tiled.cu",
        name=name,
        threads=THREADS,
        registers=80,
        shared=2 * 16 * 68 * 4,
        capability=capability,
        defines=(("INPUT", bits), ("THREADS", str(THREADS)), ("NAME", name)),
    )
    for dtype, name, bits, capability in (
        ("float32", "gemm_fp32", "32", (6, 1)),
        ("float16", "gemm_fp16", "16", (6, 1)),
        ("bfloat16", "gemm_bf16", "8", (8, 0)),
    )
}
EDGES = (128, 64)
"""Of a block of `wmma`, the one preferred first."""


def _wmma(name: str, bits: str, capability: tuple[int, int], edge: int) -> Kernel:
    depth, warp_n, threads, registers = (32, 64, 256, 176) if edge == 128 else (64, 32, 128, 192)
    function = f"{name}_{edge}"
    return Kernel(
        file="matmul/wmma.cu",
        name=function,
        threads=threads,
        registers=registers,
        shared=2 * (edge * (depth + 8) + depth * (edge + 8)) * 2,
        capability=capability,
        defines=(
            ("INPUT", bits),
            ("EDGE", str(edge)),
            ("DEPTH", str(depth)),
            ("WARP_N", str(warp_n)),
            ("THREADS", str(threads)),
            ("NAME", function),
        ),
    )


WMMA = {
    dtype: {edge: _wmma(name, bits, capability, edge) for edge in EDGES}
    for dtype, name, bits, capability in (
        ("float16", "wmma_fp16", "16", (7, 0)),
        ("bfloat16", "wmma_bf16", "8", (8, 0)),
    )
}


def _blocks(call: Call, edge: int) -> int:
    return -(-call.axes["M"] // edge) * -(-call.axes["N"] // edge)


def _step(kernel: Kernel, edge: int, call: Call) -> tuple[Step, ...]:
    launch = call.params(kernel, _blocks(call, edge))
    sizes = (np.int32(call.axes[axis]) for axis in "MNK")
    args = (call.inputs["a"], call.inputs["b"], call.outputs["c"], *sizes)
    return (Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args),)


def _tiled_steps(kernel: Kernel, call: Call) -> tuple[Step, ...]:
    return _step(kernel, EDGE, call)


def _wmma_steps(kernels: Mapping[int, Kernel], call: Call) -> tuple[Step, ...]:
    """Large tiles where every multiprocessor gets one, else small ones."""
    edge = next((edge for edge in EDGES if _blocks(call, edge) >= call.info.sms), EDGES[-1])
    return _step(kernels[edge], edge, call)


def _variant(dtype: str, name: str, tier: Tier, summary: str, kernels: tuple[Kernel, ...], steps: Steps) -> Variant:
    key = KernelKey(DEVICE, NAMES[dtype], "none", "float32")
    return variant(key, name, tier, summary, kernels, steps, constraints=(MaxSize("K", MAX_K),))


VARIANTS = (
    *(
        _variant(
            dtype,
            "tiled",
            Tier.BASELINE,
            "64 x 64 outputs a block, 4 x 4 a thread",
            (kernel,),
            partial(_tiled_steps, kernel),
        )
        for dtype, kernel in TILED.items()
    ),
    *(
        _variant(
            dtype,
            "wmma",
            Tier.OPTIMIZED,
            "tensor cores, 128 x 128 or 64 x 64 outputs a block",
            tuple(kernels.values()),
            partial(_wmma_steps, kernels),
        )
        for dtype, kernels in WMMA.items()
    ),
)
