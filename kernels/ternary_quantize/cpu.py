"""The native variants of ternary_quantize."""

from __future__ import annotations

from tritmark.harness.spec import Arrays, Axes, Launch
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_quantize.spec import CODES, PACKED


def _bind(isa: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    x, codes, scales = inputs["x"], outputs["codes"], outputs["scales"]
    # If the call exceeds the L2, ordinary stores would read the output before the write and evict the input's next
    # lines. The cost: hot, with all data in the L3, packing is 7 to 9 % slower (Zen 4: `tritmark gate 025cb93 b02c3e6
    # --op ternary_quantize`).
    stream = x.nbytes + codes.nbytes > cpu.l2_bytes()
    launch: Launch = cpu.native("ternary_quantize").TernaryQuantize(
        isa, x, min(axes["block"], axes["n"]), codes, scales, stream, threads
    )
    return launch


VARIANTS = tuple(variant for key in (CODES, PACKED) for variant in cpu.variants(key.op, key.format, key.dtype, _bind))
