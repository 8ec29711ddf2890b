"""The native variants of i2s_quantize."""

from __future__ import annotations

from tritmark.harness.spec import Arrays, Axes, Launch
from tritmark.kernels.native import cpu


def _bind(isa: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    stream = outputs["q"].nbytes > cpu.l2_bytes()
    launch: Launch = cpu.native("i2s_quantize").I2SQuantize(
        isa, inputs["x"], inputs["scale"], outputs["q"], stream, threads
    )
    return launch


VARIANTS = cpu.variants("i2s_quantize", "none", "int8", _bind)
