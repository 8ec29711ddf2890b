"""The CUDA variants of pack_codes."""

from __future__ import annotations

from functools import partial

import numpy as np

from tritmark.harness.spec import KernelKey, Tier
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.pack_codes.spec import OP, PACKED_FORMATS, Fits

_THREADS = 256
_CODES = 16
"""Codes of a thread."""
KERNELS = {
    format: Kernel(file="pack_codes/pack.cu", name=f"ternary_gpu_pack_{suffix}", threads=_THREADS, registers=48)
    for format, suffix in zip(PACKED_FORMATS, ("i2s", "row16", "tq2_0"), strict=True)
}


def _steps(format: str, call: Call) -> tuple[Step, ...]:
    kernel, N, K = KERNELS[format], call.axes["N"], call.axes["K"]
    threads = N * -(-K // 64) * 4 if format == "row16" else N * K // _CODES
    params = call.params(kernel, -(-threads // _THREADS))
    sizes = (np.uint64(N), np.uint64(K)) if format == "row16" else (np.uint64(N * K),)
    args = (call.inputs["codes"], call.inputs["scales"], call.outputs["packed"], call.bad, *sizes)
    return (Step(kernel=kernel, grid=params.grid, block=params.block, args=args),)


VARIANTS = tuple(
    variant(
        KernelKey(DEVICE, OP.name, format, "uint8"),
        "v1",
        Tier.BASELINE,
        "16 codes a thread, 16-byte loads",
        (KERNELS[format],),
        partial(_steps, format),
        constraints=(Fits(format),),
        alignment=16,
    )
    for format in PACKED_FORMATS
)
