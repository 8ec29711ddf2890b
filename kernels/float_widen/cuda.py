"""The CUDA variants of float_widen."""

from __future__ import annotations

from functools import partial

import numpy as np

from tritmark.harness.spec import KernelKey, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.float_widen.spec import FORMATS

FILE = "float_widen/float_widen.cu"
THREADS = 256
DEFINES = (("THREADS", str(THREADS)),)
TILE = 16 * THREADS
"""Elements of a block of the vector kernel."""


def _steps(kernel: Kernel, elements: int, waves: int | None, call: Call) -> tuple[Step, ...]:
    n = call.axes["n"]
    params = call.params(kernel, -(-n // elements), waves=waves)
    args = (call.inputs["h"], call.outputs["x"], np.uint64(n))
    return (Step(kernel=kernel, grid=params.grid, block=params.block, args=args),)


def _variants(format: str) -> tuple[Variant, ...]:
    key = KernelKey(DEVICE, "float_widen", format, "float32")
    v1 = Kernel(file=FILE, name=f"convert_gpu_widen_{format}_v1", threads=THREADS, registers=32, defines=DEFINES)
    vector = Kernel(file=FILE, name=f"convert_gpu_widen_{format}_pairs", threads=THREADS, registers=40, defines=DEFINES)
    wide = "16-byte loads and stores, adjacent in a warp"
    return (
        variant(key, "v1", Tier.BASELINE, "grid-stride, one element a thread", (v1,), partial(_steps, v1, THREADS, 1)),
        variant(
            key, "vector", Tier.HIGHLY_OPTIMIZED, wide, (vector,), partial(_steps, vector, TILE, None), alignment=16
        ),
    )


VARIANTS = tuple(each for format in FORMATS for each in _variants(format))
