"""The CUDA variants of activation_quantize."""

from __future__ import annotations

from functools import partial

import numpy as np

from tritmark.harness.spec import KernelKey, MaxSize, Tier, Variant
from tritmark.kernels.activation_quantize.spec import MAX_K, OP
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.cuda.launch.params import MOST_BLOCKS
from tritmark.kernels.numerics.input_dtypes import FORMATS, INPUT

FILE = "activation_quantize/activation_quantize.cu"
LIMITS = (MaxSize("K", MAX_K), MaxSize("M", MOST_BLOCKS))

WARP = 32
THREADS_V1 = 256
MOST_THREADS = 1024
DEFINES = (("THREADS_V1", str(THREADS_V1)), ("MOST_THREADS", str(MOST_THREADS)))
OF_A_THREAD = 16
"""Elements that a thread of `kept` can hold."""
SHORT = 4096
"""The longest row that twice the threads speed up if it need not share a multiprocessor.
Measured on an NVIDIA H200, one row: K = 2560 in 1.54 us with 320 threads, 1.65 with 160; K = 6912 in 2.28 us with
864 threads, 2.01 with 448."""


def _kernels(input: str) -> tuple[Kernel, Kernel, Kernel]:
    """The kernels v1, kept and long for that INPUT."""
    defines = (*DEFINES, ("INPUT", input))
    v1 = Kernel(
        file=FILE, name="ternary_gpu_activation_v1", threads=THREADS_V1, registers=32, shared=2048, defines=defines
    )
    kept, long = (
        Kernel(file=FILE, name=name, threads=MOST_THREADS, registers=64, shared=256, defines=defines, overlaps=True)
        for name in ("ternary_gpu_activation_kept", "ternary_gpu_activation_long")
    )
    return v1, kept, long


OF_FORMAT = {format: _kernels(INPUT[format]) for format in FORMATS}
"""By the key's format."""


def _step(call: Call, kernel: Kernel, threads: int) -> tuple[Step, ...]:
    M, K = call.axes["M"], call.axes["K"]
    x, out = call.inputs["x"], call.outputs
    stride = x.strides[0] // x.dtype.itemsize if M > 1 else K
    params = call.params(kernel, M, threads)
    args = (x, out["q"], out["scale"], out["sum"], np.uint64(K), np.uint64(stride), call.bad)
    return (Step(kernel=kernel, grid=params.grid, block=params.block, args=args),)


def _v1(kernel: Kernel, call: Call) -> tuple[Step, ...]:
    return _step(call, kernel, kernel.threads)


def _vector(kept: Kernel, long: Kernel, call: Call) -> tuple[Step, ...]:
    M, K = call.axes["M"], call.axes["K"]
    if K > OF_A_THREAD * MOST_THREADS:
        return _step(call, long, MOST_THREADS)
    each = OF_A_THREAD // 2 if K <= SHORT and call.info.sms >= M else OF_A_THREAD
    return _step(call, kept, -(-K // (each * WARP)) * WARP)


def _variants(format: str) -> tuple[Variant, ...]:
    key = KernelKey(DEVICE, OP.name, format, "int8")
    v1, kept, long = OF_FORMAT[format]
    return (
        variant(
            key,
            "v1",
            Tier.BASELINE,
            "a block a row, one element a thread, the row read twice",
            (v1,),
            partial(_v1, v1),
            constraints=LIMITS,
        ),
        variant(
            key,
            "vector",
            Tier.HIGHLY_OPTIMIZED,
            "a block a row, which stays in registers; four-element loads for aligned rows",
            (kept, long),
            partial(_vector, kept, long),
            constraints=LIMITS,
        ),
    )


VARIANTS = tuple(each for format in FORMATS for each in _variants(format))
