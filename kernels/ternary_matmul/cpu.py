"""The native variants of ternary_matmul, all over tile64 weights."""

from __future__ import annotations

from tritmark.harness.spec import Arrays, Axes, Launch, MaxSize
from tritmark.kernels import cpu
from tritmark.kernels.ternary_matmul.spec import DTYPES

FORMAT = "tile64"
MAX_K = (1 << 23) - 1
"""Past it, 2 * 128 * K no longer fits the int32 accumulators."""


def _bind(isa: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    launch: Launch = cpu.native("ternary_matmul").TernaryMatmul(
        isa,
        inputs["activations"],
        inputs["weights"],
        axes["N"],
        inputs["weight_scale"],
        inputs["act_scale"],
        outputs["out"],
        threads,
    )
    return launch


VARIANTS = tuple(
    variant for dtype in DTYPES for variant in cpu.variants("ternary_matmul", FORMAT, dtype, _bind, constraints=(MaxSize("K", MAX_K),))
)
