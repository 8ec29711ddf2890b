"""The CUDA kernel as variants on tritmark's device "cuda", which compiles, launches and times it, or simulates it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from tritmark.harness.spec import KernelKey, MaxSize, Tier
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark_base3.cpu import KINDS, MAX_K
from tritmark_base3.format import BASE3

WARP = 32
KERNEL = Kernel(file=str(Path(__file__).with_name("matmul.cu")), name="base3_gpu_matmul", threads=128, registers=64)


def _steps(kind: int, call: Call) -> tuple[Step, ...]:
    M, N, K = (call.axes[axis] for axis in "MNK")
    launch = call.params(KERNEL, -(-M * N // (KERNEL.threads // WARP)))
    activations = call.inputs["activations"]
    args = (
        activations,
        call.inputs["weights"],
        call.inputs["act_scale"],
        call.outputs["out"],
        np.int64(activations.strides[0]),
        np.float32(call.inputs["weight_scale"]),
        np.int32(M),
        np.int32(N),
        np.int32(K),
        np.int32(kind),
    )
    return (Step(kernel=KERNEL, grid=launch.grid, block=launch.block, args=args),)


VARIANTS = tuple(
    variant(
        KernelKey(DEVICE, "ternary_matmul", BASE3.name, dtype),
        "warp",
        Tier.BASELINE,
        "a warp an output, five weights a byte divided out in registers",
        (KERNEL,),
        partial(_steps, kind),
        constraints=(MaxSize("K", MAX_K),),
    )
    for dtype, kind in KINDS.items()
)
