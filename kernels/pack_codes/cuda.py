"""The CUDA variants of pack_codes, and the function that also makes those of unpack_codes."""

from __future__ import annotations

from functools import partial

import numpy as np

from tritmark.harness.spec import KernelKey, Op, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.pack_codes.spec import OP, PACKED_FORMATS, Fits

_THREADS = 256
_DEFINES = (("THREADS", str(_THREADS)),)
_CODES = 16
"""Codes per thread."""


def _steps(kernel: Kernel, format: str, arguments: tuple[str, ...], call: Call) -> tuple[Step, ...]:
    N, K = call.axes["N"], call.axes["K"]
    threads = N * -(-K // 64) * 4 if format == "row16" else N * K // _CODES
    params = call.params(kernel, -(-threads // _THREADS))
    sizes = (np.uint64(N), np.uint64(K)) if format == "row16" else (np.uint64(N * K),)
    arrays = {**call.inputs, **call.outputs}
    args = (*(arrays[name] for name in arguments), call.bad, *sizes)
    return (Step(kernel=kernel, grid=params.grid, block=params.block, args=args),)


def variants(op: Op, dtype: str, file: str, verb: str, arguments: tuple[str, ...], summary: str) -> tuple[Variant, ...]:
    """A variant for each of PACKED_FORMATS, with outputs of that dtype.

    Its kernel is the function ternary_gpu_VERB_FORMAT of `file`, which takes the arrays in the order of `arguments`.
    """
    made = []
    for format, suffix in zip(PACKED_FORMATS, ("i2s", "row16", "tq2_0"), strict=True):
        kernel = Kernel(
            file=file, name=f"ternary_gpu_{verb}_{suffix}", threads=_THREADS, registers=48, defines=_DEFINES
        )
        key, steps = KernelKey(DEVICE, op.name, format, dtype), partial(_steps, kernel, format, arguments)
        made.append(
            variant(key, "v1", Tier.BASELINE, summary, (kernel,), steps, constraints=(Fits(format),), alignment=16)
        )
    return tuple(made)


VARIANTS = variants(
    OP, "uint8", "pack_codes/pack.cu", "pack", ("codes", "scales", "packed"), "16 codes a thread, 16-byte loads"
)
