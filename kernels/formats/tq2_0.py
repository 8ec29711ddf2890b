"""TQ2_0, the 2-bit ternary format of ggml: blocks of 256 weights of a row in 66 bytes, with a float16 scale each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.spec import WeightType
from tritmark.kernels.formats.absmax import absmax
from tritmark.kernels.formats.base import Scale
from tritmark.kernels.formats.bits import join_fields, slabs, split_fields
from tritmark.kernels.formats.ggml_blocks import BLOCK, Blocks


class TQ2(Blocks):
    """Half blocks of 128 weights in 32 bytes: weight j in byte j % 32, the first 32 in the lowest bits; then the
    float16 scale d.

    `quantize` follows libggml on x86-64: d is float16(a), with a the largest magnitude, and the field is
    (lroundf(x * (1/a)) + 1) & 3, in float32. Unusual values behave as in libggml. A NaN makes it drop the magnitudes
    before it. A product that is NaN, infinite or beyond int64 gives w = 0. Magnitudes before a NaN may exceed a, which
    can produce the reserved field 3, which `unpack` refuses.
    """

    def _join(self, weights: NDArray[np.int8], body: NDArray[np.uint8]) -> None:
        halves, groups = body.reshape(-1, 2, 32), weights.reshape(-1, 2, 4, 32)
        for part in slabs(len(groups), BLOCK):
            join_fields([groups[part, :, g] for g in range(4)], halves[part])

    def _split(self, body: NDArray[np.uint8], weights: NDArray[np.int8]) -> None:
        halves, groups = body.reshape(-1, 2, 32), weights.reshape(-1, 2, 4, 32)
        for part in slabs(len(groups), BLOCK):
            split_fields(halves[part], [groups[part, :, g] for g in range(4)])


def _rule(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
    """The rule of quantize_row_tq2_0_ref: keeps two bits of each rounded quotient plus 1."""
    codes, scales = absmax(x, BLOCK)
    codes += 1
    codes &= 3
    codes -= 1
    return codes, scales


TQ2_0 = TQ2(
    name="tq2_0",
    block=BLOCK,
    column_multiple=BLOCK,
    code_bytes=64,
    scale_per="group",
    group=BLOCK,
    scale_dtype="float16",
    rule=_rule,
    summary="ggml: blocks of 256 weights in 66 bytes, float16 scale each",
    source="libggml 0.25.3, quantize_row_tq2_0_ref",
)

FORMATS = (TQ2_0,)

WEIGHT_TYPES = (WeightType(dtype=TQ2_0.name, layouts={"": TQ2_0.name}),)
