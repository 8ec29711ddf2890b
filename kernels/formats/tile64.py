"""tile64, the layout of tritmark's own CPU kernels: weights are repacked into it once, on load.

A tile is 64 rows; inside it, each group of 4 columns takes 64 consecutive bytes. Byte 4*r + c of those (r = 0..15, c =
0..3) holds column c of the group for the rows r, r + 16, r + 32 and r + 48 of the tile, in bits 0-1, 2-3, 4-5 and 6-7,
as the field w + 1. By shift and mask one 512-bit load thus gives four registers of 16 rows by 4 columns each: what an
int8 dot instruction (VNNI) sums into 16 int32 lanes, a lane for each row, with the 4 activations broadcast. N and K are
padded with w = 0 to whole tiles and groups, so that kernels have no tails. The last 64 bytes are the float32 scale and
zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats.base import Format, Scale, Shape
from tritmark.kernels.formats.bits import ZERO_BYTE, join_fields, slabs, split_fields

ROWS = 64
"""Rows of a tile."""
COLUMNS = 4
"""Columns of a group."""
TRAILER_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class Tile64(Format):
    """Tiles of 64 rows, 4 columns to 64 bytes, see the module."""

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """One axis: 64 bytes for each group of 4 columns of each tile, and 64 for the scale."""
        tiles, groups = _counts(shape)
        return (tiles * groups * 64 + TRAILER_BYTES,)

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        shape = codes.shape
        tiles, groups = _counts(shape)
        out = np.empty(tiles * groups * 64 + TRAILER_BYTES, np.uint8)
        body = _units(out, tiles, groups)
        whole = shape[0] // ROWS
        grid = _grid(codes[: whole * ROWS])
        for part in slabs(whole, ROWS * shape[1]):
            body[part] = _join(grid[part], groups)
        rest = codes[whole * ROWS :]
        for part in slabs(groups if len(rest) else 0, ROWS * COLUMNS):
            columns = rest[:, part.start * COLUMNS : part.stop * COLUMNS]
            padded = np.zeros((ROWS, columns.shape[1]), np.int8)
            padded[: len(rest)] = columns
            body[whole:, part] = _join(_grid(padded), part.stop - part.start)
        out[-TRAILER_BYTES:] = 0
        out[-TRAILER_BYTES : -TRAILER_BYTES + 4] = self._stored(scale).reshape(1).view(np.uint8)
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        tiles, groups = _counts(shape)
        body = _units(packed, tiles, groups)
        codes = np.empty(shape, np.int8)
        whole = shape[0] // ROWS
        grid = _grid(codes[: whole * ROWS])
        for part in slabs(whole, ROWS * shape[1]):
            self._split(body[part], grid[part])
        rest = codes[whole * ROWS :]
        for part in slabs(groups if len(rest) else 0, ROWS * COLUMNS):
            columns = rest[:, part.start * COLUMNS : part.stop * COLUMNS]
            padded = np.empty((ROWS, columns.shape[1]), np.int8)
            self._split(body[whole:, part], _grid(padded))
            columns[:] = padded[: len(rest)]
            if padded[len(rest) :].any():
                raise self._padding("rows")
        return codes, np.float32(packed[-TRAILER_BYTES : -TRAILER_BYTES + 4].view("<f4")[0])

    def _split(self, units: NDArray[np.uint32], grid: NDArray[np.int8]) -> None:
        joined = np.ascontiguousarray(units.transpose(0, 2, 1)).view(np.uint8)
        k = grid.shape[3]
        split_fields(joined[:, :, :k], [grid[:, g] for g in range(4)])
        if (joined[:, :, k:] != ZERO_BYTE).any():
            raise self._padding("columns")

    def _padding(self, axis: str) -> InvalidArgumentError:
        found = f"with weights other than 0 in the padded {axis}"
        return InvalidArgumentError(
            op=f"formats.{self.name}.unpack", argument="packed", found=found, legal="0 in the padding"
        )


def _counts(shape: Shape) -> tuple[int, int]:
    """Number of tiles, and of column groups in a tile."""
    return -(-shape[0] // ROWS), -(-shape[1] // COLUMNS)


def _units(packed: NDArray[np.uint8], tiles: int, groups: int) -> NDArray[np.uint32]:
    """The tiles as (tiles, groups, 16), four columns to a unit; only ever copied as wholes, so byte order does not
    matter."""
    return packed[:-TRAILER_BYTES].view(np.uint32).reshape(tiles, groups, 16)


def _grid(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """Whole tiles of rows as (tiles, 4, 16, K), a view: axis 1 is the field."""
    return codes.reshape(-1, 4, 16, codes.shape[1])


def _join(grid: NDArray[np.int8], groups: int) -> NDArray[np.uint32]:
    joined = np.full((len(grid), 16, groups * COLUMNS), ZERO_BYTE, np.uint8)
    join_fields([grid[:, g] for g in range(4)], joined[:, :, : grid.shape[3]])
    return joined.view(np.uint32).transpose(0, 2, 1)


TILE64 = Tile64(
    name="tile64",
    block=ROWS * COLUMNS,
    scale_per="tensor",
    summary="tritmark's kernels: tiles of 64 rows, 4 columns to 64 bytes, padded with zero weights",
    source="tritmark, kernels/formats/tile64.py",
)
