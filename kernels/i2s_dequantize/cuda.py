"""The CUDA variants of i2s_dequantize."""

from __future__ import annotations

import numpy as np

from tritmark.harness.spec import KernelKey, Tier
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant

KEY = KernelKey(DEVICE, "i2s_dequantize", "none", "float32")
FILE = "i2s_dequantize/i2s_dequantize.cu"
THREADS = 256
DEFINES = (("THREADS", str(THREADS)),)
TILE = 8 * THREADS
"""Elements of a block of `VECTOR`."""
REGISTERS = 32
"""The most registers that a kernel of this op may use (specification, 1.2)."""
OPTIONS = (f"-maxrregcount={REGISTERS}",)

V1 = Kernel(
    file=FILE,
    name="i2s_gpu_dequantize_v1",
    threads=THREADS,
    registers=REGISTERS,
    shared=16,
    defines=DEFINES,
    options=OPTIONS,
)
VECTOR = Kernel(
    file=FILE, name="i2s_gpu_dequantize_words", threads=THREADS, registers=REGISTERS, defines=DEFINES, options=OPTIONS
)


def _step(call: Call, kernel: Kernel, blocks: int, waves: int | None) -> tuple[Step, ...]:
    params = call.params(kernel, blocks, waves=waves)
    args = (call.inputs["q"], call.outputs["x"], np.float32(call.inputs["scale"]), np.uint64(call.axes["n"]))
    return (Step(kernel=kernel, grid=params.grid, block=params.block, args=args),)


def _v1(call: Call) -> tuple[Step, ...]:
    return _step(call, V1, -(-call.axes["n"] // THREADS), waves=1)


def _vector(call: Call) -> tuple[Step, ...]:
    return _step(call, VECTOR, -(-call.axes["n"] // TILE), waves=None)


VARIANTS = (
    variant(KEY, "v1", Tier.BASELINE, "specification, 1.2: grid-stride, one element a thread", (V1,), _v1),
    variant(
        KEY,
        "vector",
        Tier.HIGHLY_OPTIMIZED,
        "two 4-byte loads in flight, 16-byte stores",
        (VECTOR,),
        _vector,
        alignment=16,
    ),
)
