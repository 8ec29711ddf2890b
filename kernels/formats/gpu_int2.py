"""The layout of BitNet's CUDA kernels (bitlinear_int8xint2): tiles of 16 rows and 32 columns, words of 16 weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tritmark.kernels.formats.absmean import absmean
from tritmark.kernels.formats.base import Format, Scale, Shape
from tritmark.kernels.formats.bits import slabs
from tritmark.kernels.formats.row16 import join_words, split_words

ROWS, COLUMNS = 16, 32
"""Rows and columns of a tile."""
_ONE_MORE = np.uint8(0x55)
"""Adds 1 to each field, because the layout stores w + 2 instead of w + 1."""


class GpuInt2(Format):
    """Tiles, row by row, of 32 little-endian uint32. Word 16 * (n % 16 / 8) + 8 * (k % 32 / 16) + n % 8 of a tile holds
    16 consecutive weights of row n. Weight i is the field w + 2 at shift 8 * (i % 4) + 2 * (i / 4).

    The scale is beside the bytes, in bfloat16; `rule` rounds it.
    """

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """Two axes: N rows of K/4 bytes, as in the original, although the bytes of a tile are contiguous."""
        return shape[0], shape[1] // 4

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        n, k = codes.shape
        out = np.empty((n // ROWS, k // COLUMNS, 2, 2, 8, 4), np.uint8)
        tiles = codes.reshape(-1, ROWS, k)
        for part in slabs(n // ROWS, ROWS * k):
            words = join_words(tiles[part].reshape(-1, k))[:, : k // 4] + _ONE_MORE
            out[part] = words.reshape(-1, 2, 8, k // COLUMNS, 2, 4).transpose(0, 3, 1, 4, 2, 5)
        return out.reshape(self.packed_shape((n, k)))

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        n, k = shape
        tiles = packed.reshape(n // ROWS, k // COLUMNS, 2, 2, 8, 4)
        codes = np.empty(shape, np.int8)
        for part in slabs(n // ROWS, ROWS * k):
            words = tiles[part].transpose(0, 2, 4, 1, 3, 5).reshape(-1, k // 4)
            rows = slice(part.start * ROWS, part.stop * ROWS)
            codes[rows] = split_words(words)
            codes[rows] -= 1
        return codes, np.float32(1)


def _rule(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
    """The rule of quant_weight_int8, with the scale rounded to bfloat16, half to even."""
    codes, scale = absmean(x)
    if not np.isfinite(scale):
        return codes, scale
    bits = int(np.float32(scale).view(np.uint32))
    bits += 0x7FFF + (bits >> 16 & 1)
    return codes, np.uint32(bits & 0xFFFF0000).view(np.float32)


GPU_INT2 = GpuInt2(
    name="gpu_int2",
    block=ROWS * COLUMNS,
    row_multiple=ROWS,
    column_multiple=COLUMNS,
    fields=(1, 2, 3),
    scale_per="tensor",
    scale_stored=False,
    rule=_rule,
    summary="BitNet's CUDA kernels: tiles of 16 x 32 weights, 16 of a row per uint32; the scale is beside the bytes",
    source="microsoft/BitNet@16da220, gpu/pack_weight.py, convert_weight_int8_to_int2; gpu/convert_checkpoint.py, "
    "quant_weight_int8",
)

FORMATS = (GPU_INT2,)
