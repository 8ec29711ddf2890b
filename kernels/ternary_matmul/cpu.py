"""The native variants of ternary_matmul, for each format of weights that there are kernels for."""

from __future__ import annotations

from functools import partial

from tritmark.harness.spec import Arrays, Axes, Constraint, Launch, MaxSize, MultipleOf
from tritmark.kernels import cpu
from tritmark.kernels.ternary_matmul.spec import DTYPES

MAX_K = (1 << 23) - 1
"""Past it, 2 * 128 * K no longer fits the int32 accumulators."""

FORMATS: dict[str, tuple[str, tuple[Constraint, ...]]] = {
    "tile64": ("ternary_matmul", ()),
    "i2_s_x86": ("ternary_matmul_i2_s_x86", (MultipleOf("K", 128),)),
}
"""For each format its table of kernels in isas.h, and what their shapes must keep to. The first of several that are equally good is the one
that weights are packed into where nothing else is asked for."""


def _bind(format: str, isa: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    launch: Launch = cpu.native("ternary_matmul").TernaryMatmul(
        format,
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
    variant
    for format, (table, constraints) in FORMATS.items()
    for dtype in DTYPES
    for variant in cpu.variants("ternary_matmul", format, dtype, partial(_bind, format), (MaxSize("K", MAX_K), *constraints), table=table)
)
