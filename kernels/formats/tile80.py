"""tile80, tile64 in base 3: 4/5 of its bytes, for weights that are read from memory.

Tiles of 80 rows (tiles.py): a byte holds the weights of rows r, r + 16, r + 32, r + 48 and r + 64 as five base-3 digits
w + 1, that of row r the most significant. TQ1_0 of ggml stores five digits per byte in the same way (digits.py). A
multiplication by 3 modulo 256 leads from each 16 rows to the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tritmark.kernels.formats.base import Scale, Shape
from tritmark.kernels.formats.bits import slabs
from tritmark.kernels.formats.digits import BYTE, CODE, check_bytes, written
from tritmark.kernels.formats.tiles import COLUMNS, GROUP_BYTES, TRAILER_BYTES, Tiles

ROWS = 80
"""Rows of a tile."""
_DIGITS = 5
_ZEROS = 121
"""The value of five digits 1, 11111 in base 3."""
_WRITTEN = written(range(3**_DIGITS))


class Tile80(Tiles):
    """Tiles with five base-3 digits per byte."""

    def _join(self, codes: Sequence[NDArray[np.int8]], out: NDArray[np.uint8]) -> None:
        # Sums are modulo 256. The + 1 of each digit is added at the end, which brings the value back to 0..242.
        value = np.zeros(out.shape, np.uint8)
        for digit in codes:
            value *= 3
            value += digit.view(np.uint8)
        value += _ZEROS
        np.take(BYTE, value, out=out, mode="clip")

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        found = packed[:-TRAILER_BYTES].reshape(-1, GROUP_BYTES)
        for part in slabs(len(found), GROUP_BYTES):
            check_bytes(f"formats.{self.name}.unpack", found[part], _WRITTEN, _DIGITS, block=part.start, at=0)
        return super()._unpack(packed, shape)

    def _split(self, found: NDArray[np.uint8], out: Sequence[NDArray[np.int8]]) -> None:
        for codes, digit in zip(out, CODE, strict=True):
            codes[...] = digit[found]


TILE80 = Tile80(
    name="tile80",
    rows=ROWS,
    zero_byte=int(BYTE[_ZEROS]),
    block=ROWS * COLUMNS,
    scale_per="tensor",
    summary="tritmark's kernels: tiles of 80 rows, 4 columns per 64 bytes, five base-3 digits per byte",
    source="tritmark, kernels/formats/tile80.py",
)

FORMATS = (TILE80,)
