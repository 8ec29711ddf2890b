"""The CUDA variants of hadamard_quantize and hadamard_transform."""

from __future__ import annotations

from functools import partial

import numpy as np

from tritmark.harness.spec import KernelKey, MaxSize, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.cuda.launch.params import MOST_BLOCKS
from tritmark.kernels.hadamard_quantize.limits import LIMITS
from tritmark.kernels.hadamard_quantize.reference import factor
from tritmark.kernels.hadamard_quantize.spec import DTYPES, QUANTIZE, TRANSFORM
from tritmark.kernels.numerics.input_dtypes import FORMATS, INPUT

FILE = "hadamard_quantize/hadamard_quantize.cu"
TILE, GROUP = 1024, 64
"""Elements of a tile, and its threads."""
SHARED = 4 * (TILE + TILE // 64 * 4)
"""Bytes of shared memory of a tile."""
MOST_GROUPS = 10
"""Tiles that a block rotates at a time."""
MOST_THREADS = MOST_GROUPS * GROUP
WARPS = 256
"""Bytes of shared memory for what the warps found: two words for each of 32."""
OUTPUT = {"float32": "32", "float16": "16", "bfloat16": "8"}


def _kernel(name: str, input: str, output: str = "") -> Kernel:
    defines: tuple[tuple[str, str], ...] = (("MOST_THREADS", str(MOST_THREADS)), ("INPUT", INPUT[input]))
    if output:
        defines = (*defines, ("OUTPUT", OUTPUT[output]))
    return Kernel(
        file=FILE,
        name=f"ternary_gpu_hadamard_{name}",
        threads=MOST_THREADS,
        registers=96,
        shared=MOST_GROUPS * SHARED + WARPS,
        defines=defines,
        overlaps=True,
    )


def _step(call: Call, kernel: Kernel, groups: int, *outputs: object) -> tuple[Step, ...]:
    M, K, block = (call.axes[axis] for axis in ("M", "K", "block"))
    x = call.inputs["x"]
    stride = x.strides[0] // x.dtype.itemsize if M > 1 else K
    shared = groups * SHARED
    params = call.params(kernel, M, groups * GROUP, shared=shared)
    args = (
        x,
        call.inputs["signs"],
        *outputs,
        np.uint32(K),
        np.uint64(stride),
        np.uint32(block),
        factor(block),
    )
    return (Step(kernel=kernel, grid=params.grid, block=params.block, args=args, shared=shared),)


def _codes(one: Kernel, two: Kernel, long: Kernel, call: Call) -> tuple[Step, ...]:
    tiles = -(-call.axes["K"] // TILE)
    outputs = call.outputs["q"], call.outputs["scale"], call.outputs["sum"]
    if tiles <= MOST_GROUPS:
        return _step(call, one, tiles, *outputs)
    if tiles <= 2 * MOST_GROUPS:
        return _step(call, two, -(-tiles // 2), *outputs)
    return _step(call, long, MOST_GROUPS, *outputs)


def _floats(kernel: Kernel, call: Call) -> tuple[Step, ...]:
    return _step(call, kernel, min(MOST_GROUPS, -(-call.axes["K"] // TILE)), call.outputs["y"])


def _quantizing(format: str) -> Variant:
    one, two, long = (_kernel(name, format) for name in ("one", "two", "long"))
    return variant(
        KernelKey(DEVICE, QUANTIZE.op, format, QUANTIZE.dtype),
        "tiles",
        Tier.HIGHLY_OPTIMIZED,
        "a block a row, which stays in registers; 64 threads for 1024 elements, exchanged through shared memory",
        (one, two, long),
        partial(_codes, one, two, long),
        constraints=(*LIMITS, MaxSize("M", MOST_BLOCKS)),
    )


def _transforming(format: str, dtype: str) -> Variant:
    kernel = _kernel("floats", format, dtype)
    return variant(
        KernelKey(DEVICE, TRANSFORM.op, format, dtype),
        "tiles",
        Tier.HIGHLY_OPTIMIZED,
        "a block a row; 64 threads for 1024 elements, exchanged through shared memory",
        (kernel,),
        partial(_floats, kernel),
        constraints=(*LIMITS, MaxSize("M", MOST_BLOCKS)),
    )


VARIANTS = (
    *(_quantizing(format) for format in FORMATS),
    *(_transforming(format, dtype) for dtype in DTYPES for format in FORMATS),
)
