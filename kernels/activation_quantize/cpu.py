"""The native variants of activation_quantize."""

from __future__ import annotations

from tritmark.harness.spec import Arrays, Axes, Launch, MaxSize
from tritmark.kernels import cpu
from tritmark.kernels.activation_quantize.spec import KEY

MAX_K = (2**31 - 1) // 128
"""Past it, the sum of a row of -128 no longer fits int32."""


def _bind(isa: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    launch: Launch = cpu.native("activation_quantize").ActivationQuantize(
        isa, inputs["x"], outputs["q"], outputs["scale"], outputs["sum"], threads
    )
    return launch


VARIANTS = cpu.variants(KEY.op, KEY.format, KEY.dtype, _bind, constraints=(MaxSize("K", MAX_K),))
