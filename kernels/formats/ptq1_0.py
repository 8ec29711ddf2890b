"""PTQ1_0, PrismML's denser ternary format: TQ1_0's digits in blocks of 128 weights, 28 bytes with a float16 scale."""

from __future__ import annotations

from tritmark.harness.spec import WeightType
from tritmark.kernels.formats.absmax import absmax
from tritmark.kernels.formats.tq1_0 import TQ1

_BLOCK = 128

PTQ1_0 = TQ1(
    name="ptq1_0",
    block=_BLOCK,
    column_multiple=_BLOCK,
    code_bytes=26,
    parts=((0, 80, 0, 5, 16), (80, 120, 16, 5, 8), (120, 128, 24, 4, 2)),
    any_byte=True,
    scale_per="group",
    group=_BLOCK,
    scale_dtype="float16",
    rule=lambda x: absmax(x, _BLOCK),
    summary="PrismML: blocks of 128 weights in 28 bytes, five per byte, float16 scale each",
    source="PrismML-Eng/llama.cpp@811dce5, quantize_row_ptq1_0_ref",
)

FORMATS = (PTQ1_0,)

WEIGHT_TYPES = (WeightType(dtype=PTQ1_0.name, layouts={"": PTQ1_0.name}),)
