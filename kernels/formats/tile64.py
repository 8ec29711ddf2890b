"""tile64, the layout of tritmark's own CPU kernels. Weights are repacked into it once, on load.

Tiles of 64 rows (tiles.py): a byte holds the weights of rows r, r + 16, r + 32 and r + 48 in bits 0-1, 2-3, 4-5 and 6-7
as the field w + 1, so a shift and a mask extract them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tritmark.kernels.formats.bits import ZERO_BYTE, join_fields, split_fields
from tritmark.kernels.formats.tiles import COLUMNS, Tiles

ROWS = 64
"""Rows of a tile."""


class Tile64(Tiles):
    """Tiles with four fields of 2 bits per byte."""

    def _join(self, codes: Sequence[NDArray[np.int8]], out: NDArray[np.uint8]) -> None:
        join_fields(codes, out)

    def _split(self, found: NDArray[np.uint8], out: Sequence[NDArray[np.int8]]) -> None:
        split_fields(found, out)


TILE64 = Tile64(
    name="tile64",
    rows=ROWS,
    zero_byte=ZERO_BYTE,
    block=ROWS * COLUMNS,
    scale_per="tensor",
    summary="tritmark's kernels: tiles of 64 rows, 4 columns per 64 bytes, padded with zero weights",
    source="tritmark, kernels/formats/tile64.py",
)

FORMATS = (TILE64,)
