"""The native variants of i2s_dequantize."""

from __future__ import annotations

from tritmark.harness.spec import Arrays, Axes, Launch
from tritmark.kernels.native import cpu


def _bind(isa: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    stream = outputs["x"].nbytes > cpu.l2_bytes()
    launch: Launch = cpu.native("i2s_dequantize").I2SDequantize(
        isa, inputs["q"], inputs["scale"], outputs["x"], stream, threads
    )
    return launch


VARIANTS = cpu.variants("i2s_dequantize", "none", "float32", _bind)
