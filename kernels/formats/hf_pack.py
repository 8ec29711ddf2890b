"""The layout of BitNet models on Hugging Face: one row of each quarter of the rows per byte.

The scale is beside the bytes, as `weight_scale`. It has two meanings. In models with `linear_class` autobitlinear
(bitnet-b1.58-2B-4T) it is the value of code 1, as here. In models with bitlinear it is the factor that weights were
multiplied by.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import WeightType
from tritmark.harness.weights.format_names import PACKED_ROWS
from tritmark.kernels.formats.absmean import absmean
from tritmark.kernels.formats.base import Format, Scale, Shape
from tritmark.kernels.formats.bits import join_fields, slabs, split_fields


class HfPack(Format):
    """R = ceil(N/4) packed rows: row n of the weights is the field w + 1 at shift 2 * (n / R) of packed row n % R.
    Fields of rows beyond N are 0, which reads back as -1."""

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """Two axes: ceil(N/4) rows of K bytes."""
        return -(-shape[0] // 4), shape[1]

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        out = np.empty(self.packed_shape(codes.shape), np.uint8)
        for part, quarters in _quarters(codes):
            join_fields([_filled(quarter, part) for quarter in quarters], out[part])
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        rows = packed.reshape(self.packed_shape(shape))
        codes = np.empty(shape, np.int8)
        for part, quarters in _quarters(codes):
            found = [_filled(quarter, part) for quarter in quarters]
            split_fields(rows[part], found)
            for quarter, whole in zip(quarters, found, strict=True):
                if whole is not quarter:
                    quarter[:] = whole[: len(quarter)]
                    if (whole[len(quarter) :] != -1).any():
                        raise InvalidArgumentError(
                            op=f"formats.{self.name}.unpack",
                            argument="packed",
                            found="with fields other than 0 in the padded rows",
                            legal="0 in the padding",
                        )
        return codes, np.float32(1)


def _quarters(codes: NDArray[np.int8]) -> Iterator[tuple[slice, list[NDArray[np.int8]]]]:
    """Slices of packed rows, each with its rows of the four quarters of the codes; the last may have fewer."""
    n, k = codes.shape
    rows = -(-n // 4)
    for part in slabs(rows, 4 * k):
        starts = [min(g * rows + part.start, n) for g in range(4)]
        yield part, [codes[start : min(start + part.stop - part.start, n)] for start in starts]


def _filled(quarter: NDArray[np.int8], part: slice) -> NDArray[np.int8]:
    """The quarter if it has all rows, otherwise a copy that is padded with -1."""
    rows = part.stop - part.start
    if len(quarter) == rows:
        return quarter
    filled = np.full((rows, quarter.shape[1]), -1, np.int8)
    filled[: len(quarter)] = quarter
    return filled


HF_PACK = HfPack(
    name="hf_pack",
    block=4,
    scale_per="tensor",
    scale_stored=False,
    rule=absmean,
    summary="Hugging Face: a byte has one row of each quarter of the rows; the scale is beside the bytes",
    source="transformers 5.23.0, transformers/integrations/bitnet.py, pack_weights and WeightQuant",
)

FORMATS = (HF_PACK,)

WEIGHT_TYPES = (WeightType(dtype=PACKED_ROWS, layouts={"": HF_PACK.name}),)
