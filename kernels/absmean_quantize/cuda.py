"""The CUDA variants of absmean_quantize."""

from __future__ import annotations

import numpy as np

from tritmark.harness.spec import Axes, KernelKey, Tier
from tritmark.kernels.absmean_quantize.reference import CHUNK, CHUNKS, LANES
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant

KEY = KernelKey(DEVICE, "absmean_quantize", "none", "int8")
FILE = "absmean_quantize/absmean_quantize.cu"
THREADS = 256
TILE = 8 * THREADS
"""Elements of a block of `CODES`."""
WARP = 32
DEFINES = (("THREADS", str(THREADS)), ("MOST_CHUNKS", str(CHUNKS)), ("WARP", str(WARP)))

SUMS_V1 = Kernel(file=FILE, name="ternary_gpu_absmean_sums_v1", threads=THREADS, registers=32, defines=DEFINES)
CODES_V1 = Kernel(
    file=FILE, name="ternary_gpu_absmean_codes_v1", threads=THREADS, registers=32, shared=16, defines=DEFINES
)
SCALE = Kernel(
    file=FILE, name="ternary_gpu_absmean_scale", threads=CHUNKS, registers=32, shared=8 * CHUNKS, defines=DEFINES
)
SUMS = Kernel(
    file=FILE, name="ternary_gpu_absmean_sums_ahead", threads=WARP, registers=96, shared=16 << 10, defines=DEFINES
)
CODES = Kernel(file=FILE, name="ternary_gpu_absmean_codes_words", threads=THREADS, registers=32, defines=DEFINES)


def _chunks(n: int) -> tuple[int, int]:
    """Elements of a chunk, and the number of chunks."""
    size = CHUNK * -(-n // (CHUNK * CHUNKS))
    return size, -(-n // size)


def _scale(call: Call) -> Step:
    n = call.axes["n"]
    params = call.params(SCALE, 1)
    args = (call.workspace, call.outputs["scale"], np.uint64(n), np.int32(_chunks(n)[1]))
    return Step(kernel=SCALE, grid=params.grid, block=params.block, args=args)


def _v1(call: Call) -> tuple[Step, ...]:
    n = call.axes["n"]
    size, chunks = _chunks(n)
    x, q = call.inputs["x"], call.outputs["codes"]
    sums = call.params(SUMS_V1, -(-chunks * LANES // THREADS))
    codes = call.params(CODES_V1, -(-n // THREADS), waves=1)
    return (
        Step(
            kernel=SUMS_V1,
            grid=sums.grid,
            block=sums.block,
            args=(x, call.workspace, np.uint64(n), np.uint64(size), call.bad),
        ),
        _scale(call),
        Step(kernel=CODES_V1, grid=codes.grid, block=codes.block, args=(x, q, call.outputs["scale"], np.uint64(n))),
    )


def _vector(call: Call) -> tuple[Step, ...]:
    n = call.axes["n"]
    size, chunks = _chunks(n)
    x, q = call.inputs["x"], call.outputs["codes"]
    sums = call.params(SUMS, -(-chunks * LANES // WARP))
    codes = call.params(CODES, -(-n // TILE))
    return (
        Step(
            kernel=SUMS,
            grid=sums.grid,
            block=sums.block,
            args=(x, call.workspace, np.uint64(n), np.uint64(size), call.bad),
        ),
        _scale(call),
        Step(kernel=CODES, grid=codes.grid, block=codes.block, args=(x, q, call.outputs["scale"], np.uint64(n))),
    )


def _workspace(axes: Axes) -> int:
    """A float64 sum for each chunk."""
    return 8 * CHUNKS


VARIANTS = (
    variant(
        KEY,
        "v1",
        Tier.BASELINE,
        "a thread for each lane of the contract's order; codes by a division",
        (SUMS_V1, SCALE, CODES_V1),
        _v1,
        workspace=_workspace,
    ),
    variant(
        KEY,
        "vector",
        Tier.HIGHLY_OPTIMIZED,
        "a thread for each lane, asynchronous copies to shared memory; codes by comparison, 16-byte loads",
        (SUMS, SCALE, CODES),
        _vector,
        alignment=16,
        workspace=_workspace,
    ),
)
