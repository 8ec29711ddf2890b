"""IQ2_BN_R4 of ik_llama.cpp: four interleaved rows, 64 columns at a time, with a float32 scale for each row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.spec import WeightType
from tritmark.kernels.formats.base import Format, Scale, Shape
from tritmark.kernels.formats.bits import join_fields, slabs, split_fields

ROWS = 4
"""Interleaved rows."""
BLOCK = 64
"""Columns of a block; also its bytes, for ROWS rows."""


class Iq2BnR4(Format):
    """Four rows begin with their float32 scales. Blocks of 64 columns in 64 bytes follow: byte 16*l + 4*r + i (l, r, i
    from 0 to 3) holds, at bits 2*s, the field w + 1 of column 16*l + 4*s + i of row r.

    `quantize` follows ik_llama.cpp. The scale is the largest magnitude of the row, ignoring NaN. w is 0 if |x| is less
    than half of it in float32, otherwise the sign; NaN becomes 1. A row of zeros becomes 1 everywhere, with scale 0.
    """

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """Two axes: N rows of K/4 bytes and 4 for a scale. Four interleaved rows take the bytes of four such rows."""
        return shape[0], shape[1] // 4 + 4

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        out = np.empty(self.packed_shape(codes.shape), np.uint8)
        fours = out.reshape(len(codes) // ROWS, -1)
        fours[:, : 4 * ROWS] = self._stored(scale).reshape(-1, ROWS).view(np.uint8)
        columns, body = _columns(codes), fours[:, 4 * ROWS :].reshape(len(fours), -1, 4, ROWS, 4)
        for part in slabs(len(fours), ROWS * codes.shape[1]):
            for row in range(ROWS):
                join_fields([columns[part, row, :, :, s] for s in range(4)], body[part, :, :, row])
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        fours = packed.reshape(shape[0] // ROWS, -1)
        codes = np.empty(shape, np.int8)
        columns, body = _columns(codes), fours[:, 4 * ROWS :].reshape(len(fours), -1, 4, ROWS, 4)
        for part in slabs(len(fours), ROWS * shape[1]):
            for row in range(ROWS):
                split_fields(body[part, :, :, row], [columns[part, row, :, :, s] for s in range(4)])
        return codes, self.stored_scales(packed, shape)

    def stored_scales(self, packed: NDArray[np.uint8], shape: Shape) -> Scale:
        """The scales of the rows alone, without their codes."""
        fours = packed.reshape(shape[0] // ROWS, -1)
        return np.ascontiguousarray(fours[:, : 4 * ROWS]).view("<f4").astype(np.float32).reshape(-1)


def _columns(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """The codes as (four rows, r, block, l, s, i)."""
    n, k = codes.shape
    return codes.reshape(n // ROWS, ROWS, k // BLOCK, 4, 4, 4)


def _rule(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
    """The rule of quantize_iq2_bn, row by row."""
    codes, scales = np.empty(x.shape, np.int8), np.empty(len(x), np.float32)
    for part in slabs(len(x), x.shape[1] * x.itemsize):
        magnitudes = np.abs(x[part])
        scales[part] = np.fmax.reduce(magnitudes, axis=1, initial=np.float32(0))
        half = np.float32(0.5) * scales[part]
        codes[part] = np.where(magnitudes < half[:, np.newaxis], 0, np.where(x[part] < 0, -1, 1))
    return codes, scales


IQ2_BN_R4 = Iq2BnR4(
    name="iq2_bn_r4",
    block=ROWS * BLOCK,
    row_multiple=ROWS,
    column_multiple=BLOCK,
    scale_per="row",
    rule=_rule,
    summary="ik_llama.cpp: four interleaved rows, 64 columns in 64 bytes, float32 scale per row",
    source="ikawrakow/ik_llama.cpp@8337e4cd3, quantize_iq2_bn_r4",
)

FORMATS = (IQ2_BN_R4,)

WEIGHT_TYPES = (WeightType(dtype=IQ2_BN_R4.name, layouts={"": IQ2_BN_R4.name}),)
