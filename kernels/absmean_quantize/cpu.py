"""The native variants of absmean_quantize."""

from __future__ import annotations

from tritmark.harness.spec import Arrays, Axes, Launch
from tritmark.kernels.native import cpu


def _bind(isa: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    codes, scale = outputs["codes"], outputs["scale"].reshape(1)
    stream = codes.nbytes > cpu.l2_bytes()
    launch: Launch = cpu.native("absmean_quantize").AbsmeanQuantize(isa, inputs["x"], codes, scale, stream, threads)
    return launch


VARIANTS = cpu.variants("absmean_quantize", "none", "int8", _bind)
