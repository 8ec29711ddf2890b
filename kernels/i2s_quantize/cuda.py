"""The CUDA variants of i2s_quantize."""

from __future__ import annotations

from functools import partial

import numpy as np

from tritmark.harness.spec import KernelKey, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.i2s_quantize.spec import OP
from tritmark.kernels.i2s_quantize.steps import find_steps
from tritmark.kernels.numerics.input_dtypes import FORMATS, INPUT, NARROW, itemsize

FILE = "i2s_quantize/i2s_quantize.cu"
THREADS = 256
REGISTERS = 32
"""The most registers that a kernel of this op may use (specification, 1.2)."""
OPTIONS = (f"-maxrregcount={REGISTERS}",)


def _kernel(name: str, format: str, shared: int = 0) -> Kernel:
    return Kernel(
        file=FILE,
        name=name,
        threads=THREADS,
        registers=REGISTERS,
        shared=shared,
        defines=(("THREADS", str(THREADS)), ("INPUT", INPUT[format])),
        options=OPTIONS,
    )


V1 = _kernel("i2s_gpu_quantize_v1", "none", 16)
VECTOR = {format: _kernel("i2s_gpu_quantize_words", format) for format in FORMATS}


def _v1(call: Call) -> tuple[Step, ...]:
    n = call.axes["n"]
    params = call.params(V1, -(-n // THREADS), waves=1)
    args = (call.inputs["x"], call.outputs["q"], np.float32(call.inputs["scale"]), np.uint64(n), call.bad)
    return (Step(kernel=V1, grid=params.grid, block=params.block, args=args),)


def _vector(kernel: Kernel, tile: int, call: Call) -> tuple[Step, ...]:
    n = call.axes["n"]
    params = call.params(kernel, -(-n // tile))
    args = (call.inputs["x"], call.outputs["q"], *find_steps(np.float32(call.inputs["scale"])), np.uint64(n), call.bad)
    return (Step(kernel=kernel, grid=params.grid, block=params.block, args=args),)


def _key(format: str) -> KernelKey:
    return KernelKey(DEVICE, OP.name, format, "int8")


def _vector_variant(format: str) -> Variant:
    kernel = VECTOR[format]
    return variant(
        _key(format),
        "vector",
        Tier.HIGHLY_OPTIMIZED,
        "32 bytes in flight in each thread, comparisons in place of the division",
        (kernel,),
        partial(_vector, kernel, 32 // itemsize(format) * THREADS),
        alignment=16,
    )


VARIANTS = (
    variant(
        _key("none"),
        "v1",
        Tier.BASELINE,
        "specification, 1.2: grid-stride, one element a thread, a division",
        (V1,),
        _v1,
    ),
    _vector_variant("none"),
    *(_vector_variant(format) for format in NARROW),
)
