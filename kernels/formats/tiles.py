"""Common parts of tile64 and tile80: tiles of rows whose bytes hold one weight each of several rows.

In a tile each group of 4 columns takes 64 consecutive bytes. Byte 4*r + c of these (r = 0..15, c = 0..3) holds column c
of the group for rows r, r + 16, r + 32 and so on. So one 512-bit load fills several registers of 16 rows by 4 columns.
An int8 dot instruction (VNNI) sums each into 16 int32 lanes, one per row, with the 4 activations broadcast. N and K are
padded with w = 0 to whole tiles and groups, so kernels have no tails. The last 64 bytes are the float32 scale and
zeros.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats.base import Format, Scale, Shape
from tritmark.kernels.formats.bits import slabs

COLUMNS = 4
"""Columns per group."""
SIDE_BY_SIDE = 16
"""Rows with adjacent weights in a group."""
GROUP_BYTES = COLUMNS * SIDE_BY_SIDE
TRAILER_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class Tiles(Format):
    """Tiles of `rows` rows, 4 columns per 64 bytes, see the module."""

    rows: int
    """Rows per tile, a multiple of SIDE_BY_SIDE."""
    zero_byte: int
    """A byte with all weights 0."""

    @abstractmethod
    def _join(self, codes: Sequence[NDArray[np.int8]], out: NDArray[np.uint8]) -> None:
        """Write one code of each of the equally shaped arrays into each byte of `out`."""

    @abstractmethod
    def _split(self, found: NDArray[np.uint8], out: Sequence[NDArray[np.int8]]) -> None:
        """Undo `_join`."""

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """One axis: 64 bytes for each group of 4 columns of each tile, and 64 for the scale."""
        tiles, groups = self._counts(shape)
        return (tiles * groups * GROUP_BYTES + TRAILER_BYTES,)

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        shape = codes.shape
        tiles, groups = self._counts(shape)
        out = np.empty(tiles * groups * GROUP_BYTES + TRAILER_BYTES, np.uint8)
        body = _units(out, tiles, groups)
        whole = shape[0] // self.rows
        grid = self._grid(codes[: whole * self.rows])
        for part in slabs(whole, self.rows * shape[1]):
            body[part] = self._joined(grid[part], groups)
        rest = codes[whole * self.rows :]
        for part in slabs(groups if len(rest) else 0, self.rows * COLUMNS):
            columns = rest[:, part.start * COLUMNS : part.stop * COLUMNS]
            padded = np.zeros((self.rows, columns.shape[1]), np.int8)
            padded[: len(rest)] = columns
            body[whole:, part] = self._joined(self._grid(padded), part.stop - part.start)
        out[-TRAILER_BYTES:] = 0
        out[-TRAILER_BYTES : -TRAILER_BYTES + 4] = self._stored(scale).reshape(1).view(np.uint8)
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        tiles, groups = self._counts(shape)
        body = _units(packed, tiles, groups)
        codes = np.empty(shape, np.int8)
        whole = shape[0] // self.rows
        grid = self._grid(codes[: whole * self.rows])
        for part in slabs(whole, self.rows * shape[1]):
            self._taken(body[part], grid[part])
        rest = codes[whole * self.rows :]
        for part in slabs(groups if len(rest) else 0, self.rows * COLUMNS):
            columns = rest[:, part.start * COLUMNS : part.stop * COLUMNS]
            padded = np.empty((self.rows, columns.shape[1]), np.int8)
            self._taken(body[whole:, part], self._grid(padded))
            columns[:] = padded[: len(rest)]
            if padded[len(rest) :].any():
                raise self._padding("rows")
        return codes, np.float32(packed[-TRAILER_BYTES : -TRAILER_BYTES + 4].view("<f4")[0])

    def _counts(self, shape: Shape) -> tuple[int, int]:
        """Number of tiles, and of column groups per tile."""
        return -(-shape[0] // self.rows), -(-shape[1] // COLUMNS)

    def _grid(self, codes: NDArray[np.int8]) -> NDArray[np.int8]:
        """Whole tiles of rows as (tiles, weights in a byte, 16, K), a view."""
        return codes.reshape(-1, self.rows // SIDE_BY_SIDE, SIDE_BY_SIDE, codes.shape[1])

    def _joined(self, grid: NDArray[np.int8], groups: int) -> NDArray[np.uint32]:
        joined = np.full((len(grid), SIDE_BY_SIDE, groups * COLUMNS), self.zero_byte, np.uint8)
        self._join(_planes(grid), joined[:, :, : grid.shape[3]])
        return joined.view(np.uint32).transpose(0, 2, 1)

    def _taken(self, units: NDArray[np.uint32], grid: NDArray[np.int8]) -> None:
        joined = np.ascontiguousarray(units.transpose(0, 2, 1)).view(np.uint8)
        k = grid.shape[3]
        self._split(joined[:, :, :k], _planes(grid))
        if (joined[:, :, k:] != self.zero_byte).any():
            raise self._padding("columns")

    def _padding(self, axis: str, what: str = "weights") -> InvalidArgumentError:
        found = f"with {what} other than 0 in the padded {axis}"
        return InvalidArgumentError(
            op=f"formats.{self.name}.unpack", argument="packed", found=found, legal="0 in the padding"
        )


def _units(packed: NDArray[np.uint8], tiles: int, groups: int) -> NDArray[np.uint32]:
    """The tiles as (tiles, groups, 16), one unit for four columns. Units are only copied, so byte order does not
    matter."""
    return packed[:-TRAILER_BYTES].view(np.uint32).reshape(tiles, groups, SIDE_BY_SIDE)


def _planes(grid: NDArray[np.int8]) -> list[NDArray[np.int8]]:
    """One view for each weight of a byte."""
    return [grid[:, place] for place in range(grid.shape[1])]
