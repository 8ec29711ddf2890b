"""CUDA kernels of i2s_quantize that fail on the device, for recover_on_gpu.py. A module of its own, so that workers can
import it. They are candidates: selected only by name."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from tritmark.harness.spec import KernelKey, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant

KEY = KernelKey(DEVICE, "i2s_quantize", "none", "int8")
THREADS = 256
PLANTED = Kernel(
    file=str(Path(__file__).with_suffix(".cu")), name="i2s_gpu_planted", threads=1024, registers=64, local=64
)
FAULTS = {"sound": 0, "trap": 1, "illegal_address": 2, "endless": 3}


def _steps(fault: int, threads: int, call: Call) -> tuple[Step, ...]:
    n = call.axes["n"]
    args = (
        call.inputs["x"],
        call.outputs["q"],
        np.float32(call.inputs["scale"]),
        np.uint64(n),
        np.int32(fault),
        call.bad,
    )
    return (Step(kernel=PLANTED, grid=(-(-n // threads), 1, 1), block=(threads, 1, 1), args=args),)


def _planted(name: str, fault: int, threads: int = THREADS) -> Variant:
    return variant(KEY, name, Tier.CANDIDATE, "fails", (PLANTED,), partial(_steps, fault, threads))


VARIANTS = (*(_planted(name, fault) for name, fault in FAULTS.items()), _planted("many_threads", 0, 2048))
