"""The CUDA variants of float_narrow."""

from __future__ import annotations

from functools import partial

import numpy as np

from tritmark.harness.spec import KernelKey, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.float_narrow.spec import DTYPES

FILE = "float_narrow/float_narrow.cu"
THREADS = 256
DEFINES = (("THREADS", str(THREADS)),)
TILE = 16 * THREADS
"""Elements of a block of the vector kernel."""


def _steps(kernel: Kernel, elements: int, waves: int | None, call: Call) -> tuple[Step, ...]:
    n = call.axes["n"]
    params = call.params(kernel, -(-n // elements), waves=waves)
    args = (call.inputs["x"], call.outputs["h"], np.uint64(n))
    return (Step(kernel=kernel, grid=params.grid, block=params.block, args=args),)


def _variants(dtype: str) -> tuple[Variant, ...]:
    key = KernelKey(DEVICE, "float_narrow", "none", dtype)
    v1 = Kernel(file=FILE, name=f"convert_gpu_narrow_{dtype}_v1", threads=THREADS, registers=32, defines=DEFINES)
    vector = Kernel(file=FILE, name=f"convert_gpu_narrow_{dtype}_words", threads=THREADS, registers=40, defines=DEFINES)
    wide = "four 16-byte loads in flight, 8-byte stores"
    return (
        variant(key, "v1", Tier.BASELINE, "grid-stride, one element a thread", (v1,), partial(_steps, v1, THREADS, 1)),
        variant(
            key, "vector", Tier.HIGHLY_OPTIMIZED, wide, (vector,), partial(_steps, vector, TILE, None), alignment=16
        ),
    )


VARIANTS = tuple(each for dtype in DTYPES for each in _variants(dtype))
