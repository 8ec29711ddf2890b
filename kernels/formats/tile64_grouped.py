"""tile64 with a float16 scale for each group of a row's weights, in groups of 32, 64, 128 or 256.

Tiles of 64 rows (tiles.py). A tile's columns are cut into groups. A group is 128 bytes of float16 scales, one for each
row in order, then its codes as in tile64: 64 bytes for each 4 columns. So kernels read one stream, and codes begin on a
cache line. Field 3 is the weight +2, which q2_0 and pq2_0 can hold too. Rows are padded to whole tiles with zero
weights and zero scales. K is a multiple of the group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritmark.kernels.formats.base import Scale, Shape
from tritmark.kernels.formats.bits import ZERO_BYTE, slabs
from tritmark.kernels.formats.tile64 import ROWS, Tile64
from tritmark.kernels.formats.tiles import COLUMNS, GROUP_BYTES, SIDE_BY_SIDE

SCALE_BYTES = 2 * ROWS
"""Of a group: a float16 for each row of the tile."""


@dataclass(frozen=True, kw_only=True)
class GroupedTile64(Tile64):
    """Tiles of 64 rows, with the scales of each group of columns before its codes."""

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """One axis: 128 + 16 * group bytes for each group of each tile."""
        tiles, _ = self._counts(shape)
        return (tiles * (shape[1] // self.group) * self._group_bytes,)

    @property
    def _group_bytes(self) -> int:
        return SCALE_BYTES + self.group // COLUMNS * GROUP_BYTES

    def _groups(self, packed: NDArray[np.uint8], shape: Shape) -> NDArray[np.uint8]:
        """The bytes as (tiles, groups, bytes of a group), a view."""
        return packed.reshape(-1, shape[1] // self.group, self._group_bytes)

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        shape = codes.shape
        out = np.empty(self.packed_shape(shape), np.uint8)
        groups = self._groups(out, shape)
        tiles = np.zeros((len(groups) * ROWS, groups.shape[1]), "<f2")
        tiles[: shape[0]] = self._stored(scale)
        groups[:, :, :SCALE_BYTES].view("<f2")[:] = tiles.reshape(-1, ROWS, groups.shape[1]).transpose(0, 2, 1)
        for tile, columns in self._parts(shape):
            rows = codes[tile.start * ROWS : tile.stop * ROWS, columns]
            if len(rows) < (tile.stop - tile.start) * ROWS:
                rows = np.pad(rows, ((0, (tile.stop - tile.start) * ROWS - len(rows)), (0, 0)))
            units = self._joined(self._grid(rows), rows.shape[1] // COLUMNS)
            body = groups[tile, columns.start // self.group : columns.stop // self.group, SCALE_BYTES:].view(np.uint32)
            body[:] = units.reshape(body.shape)
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        groups, codes = self._groups(packed, shape), np.empty(shape, np.int8)
        for tile, columns in self._parts(shape):
            rows = codes[tile.start * ROWS : tile.stop * ROWS, columns]
            whole = np.empty(((tile.stop - tile.start) * ROWS, rows.shape[1]), np.int8)
            body = groups[tile, columns.start // self.group : columns.stop // self.group, SCALE_BYTES:]
            units = np.ascontiguousarray(body).view(np.uint32)
            self._taken(units.reshape(tile.stop - tile.start, -1, SIDE_BY_SIDE), self._grid(whole))
            rows[:] = whole[: len(rows)]
            if whole[len(rows) :].any():
                raise self._padding("rows")
        rest = shape[0] % ROWS
        if rest and groups[-1, :, 2 * rest : SCALE_BYTES].any():
            raise self._padding("rows", "scales")
        return codes, self.stored_scales(packed, shape)

    def stored_scales(self, packed: NDArray[np.uint8], shape: Shape) -> Scale:
        """See Format."""
        stored = np.ascontiguousarray(self._groups(packed, shape)[:, :, :SCALE_BYTES]).view("<f2")
        rows = stored.transpose(0, 2, 1).reshape(-1, stored.shape[1])[: shape[0]]
        return np.ascontiguousarray(rows.astype(np.float32))

    def _parts(self, shape: Shape) -> list[tuple[slice, slice]]:
        """Slices of tiles and of columns, whole groups, that together are the matrix; each is a few hundred KiB."""
        tiles, _ = self._counts(shape)
        return [
            (tile, slice(part.start * self.group, part.stop * self.group))
            for tile in slabs(tiles, ROWS * shape[1])
            for part in slabs(shape[1] // self.group, (tile.stop - tile.start) * ROWS * self.group)
        ]


def _of(group: int) -> GroupedTile64:
    return GroupedTile64(
        name=f"tile64_g{group}",
        rows=ROWS,
        zero_byte=ZERO_BYTE,
        block=ROWS * group,
        column_multiple=group,
        scale_per="group",
        group=group,
        tiled=True,
        scale_dtype="float16",
        codes=(-1, 0, 1, 2),
        fields=(0, 1, 2, 3),
        summary=f"tritmark's kernels: tiles of 64 rows, with a float16 scale per {group} weights of a row, -1 to 2",
        source="tritmark, kernels/formats/tile64_grouped.py",
    )


GROUPS = (32, 64, 128, 256)

FORMATS = tuple(_of(group) for group in GROUPS)
