"""The native variants of activation_quantize."""

from __future__ import annotations

from functools import partial

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Launch, MaxSize
from tritmark.kernels.activation_quantize.spec import KEY, MAX_K
from tritmark.kernels.native import cpu
from tritmark.kernels.numerics.input_dtypes import FORMATS, NARROW


def _bind(format: str, isa: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    x = inputs["x"].view(np.uint16) if format in NARROW else inputs["x"]
    launch: Launch = cpu.native("activation_quantize").ActivationQuantize(
        isa, format, x, outputs["q"], outputs["scale"], outputs["sum"], threads
    )
    return launch


VARIANTS = tuple(
    variant
    for format in FORMATS
    for variant in cpu.variants(KEY.op, format, KEY.dtype, partial(_bind, format), constraints=(MaxSize("K", MAX_K),))
)
