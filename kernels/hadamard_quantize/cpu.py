"""The native variants of hadamard_quantize and hadamard_transform."""

from __future__ import annotations

from functools import partial

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch
from tritmark.kernels.hadamard_quantize.limits import LIMITS
from tritmark.kernels.hadamard_quantize.spec import DTYPES, QUANTIZE, TRANSFORM
from tritmark.kernels.native import cpu
from tritmark.kernels.numerics.input_dtypes import FORMATS, NARROW


def _bind(key: KernelKey, isa: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    x = inputs["x"].view(np.uint16) if key.format in NARROW else inputs["x"]
    out = outputs["q"] if key.op == QUANTIZE.op else outputs["y"]
    if key.dtype in NARROW:
        out = out.view(np.uint16)
    launch: Launch = cpu.native(QUANTIZE.op).HadamardQuantize(
        isa,
        key.format,
        key.dtype,
        x,
        inputs["signs"],
        out,
        outputs.get("scale"),
        outputs.get("sum"),
        axes["block"],
        threads,
    )
    return launch


KEYS = tuple(
    KernelKey("cpu", op, format, dtype)
    for op, dtypes in ((QUANTIZE.op, (QUANTIZE.dtype,)), (TRANSFORM.op, DTYPES))
    for dtype in dtypes
    for format in FORMATS
)

VARIANTS = tuple(
    variant
    for key in KEYS
    for variant in cpu.variants(
        key.op, key.format, key.dtype, partial(_bind, key), constraints=LIMITS, table=QUANTIZE.op, module=QUANTIZE.op
    )
)
