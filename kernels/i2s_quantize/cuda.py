"""The CUDA variants of i2s_quantize."""

from __future__ import annotations

import numpy as np

from tritmark.harness.spec import KernelKey, Tier
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.i2s_quantize.steps import find_steps

KEY = KernelKey(DEVICE, "i2s_quantize", "none", "int8")
FILE = "i2s_quantize/i2s_quantize.cu"
THREADS = 256
DEFINES = (("THREADS", str(THREADS)),)
TILE = 8 * THREADS
"""Elements of a block of `VECTOR`."""
REGISTERS = 32
"""What a kernel of this op may use (specification, 1.2); the compiler is held to it."""
OPTIONS = (f"-maxrregcount={REGISTERS}",)

V1 = Kernel(
    file=FILE,
    name="i2s_gpu_quantize_v1",
    threads=THREADS,
    registers=REGISTERS,
    shared=16,
    defines=DEFINES,
    options=OPTIONS,
)
VECTOR = Kernel(
    file=FILE, name="i2s_gpu_quantize_words", threads=THREADS, registers=REGISTERS, defines=DEFINES, options=OPTIONS
)


def _v1(call: Call) -> tuple[Step, ...]:
    n = call.axes["n"]
    params = call.params(V1, -(-n // THREADS), waves=1)
    args = (call.inputs["x"], call.outputs["q"], np.float32(call.inputs["scale"]), np.uint64(n), call.bad)
    return (Step(kernel=V1, grid=params.grid, block=params.block, args=args),)


def _vector(call: Call) -> tuple[Step, ...]:
    n = call.axes["n"]
    params = call.params(VECTOR, -(-n // TILE))
    args = (call.inputs["x"], call.outputs["q"], *find_steps(np.float32(call.inputs["scale"])), np.uint64(n), call.bad)
    return (Step(kernel=VECTOR, grid=params.grid, block=params.block, args=args),)


VARIANTS = (
    variant(KEY, "v1", Tier.BASELINE, "specification, 1.2: grid-stride, one element a thread, a division", (V1,), _v1),
    variant(
        KEY,
        "vector",
        Tier.HIGHLY_OPTIMIZED,
        "16-byte loads, two under way, comparisons in place of the division",
        (VECTOR,),
        _vector,
        alignment=16,
    ),
)
