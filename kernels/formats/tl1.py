"""TL1, the format of bitnet.cpp's look-up kernels for ARM: pairs of weights in nibbles, one byte for four columns of a
row.

Tiles of BM rows and BK columns, row of tiles by row of tiles. A tile is split into blocks of bm rows and 256 / bm
columns, 64 bytes each. A block holds groups of 16 rows; a group holds one byte per row for each four columns. The high
nibble has the first two columns. The scale is beside the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import WeightType
from tritmark.kernels.formats.base import Scale, Shape
from tritmark.kernels.formats.bits import slabs
from tritmark.kernels.formats.tl_layout import ROWS, TL, Layout, of_pairs, pair_bytes, signs

_BLOCK = 256
"""Weights per 64 bytes."""
_LARGEST = 8
"""The largest field of a pair."""


class TL1(TL):
    """TL1, see the module."""

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """One axis: N*K/4 bytes."""
        return (shape[0] * shape[1] // 4,)

    def rows_apart(self, shape: Shape) -> int:
        return self.layout(f"formats.{self.name}", shape).BM

    def unfit(self, layout: Layout) -> str | None:
        fits = layout.bm in (16, 32, 64) and not (layout.BM % layout.bm or layout.BK % (_BLOCK // layout.bm))
        return None if fits else "bm of 16, 32 or 64, BM a multiple of bm, BK of 256 / bm"

    def columns_of(self, layout: Layout) -> int:
        return layout.BK

    def _parts(
        self, codes: NDArray[np.int8], packed: NDArray[np.uint8]
    ) -> Iterator[tuple[NDArray[np.int8], NDArray[np.uint8]]]:
        """Codes (rows, columns) of some tiles at a time, and their bytes as (bm rows, 16 of them, row, tile, columns of
        a block, four of them)."""
        BM, BK, bm = self.layout(f"formats.{self.name}", codes.shape)
        by = _BLOCK // bm
        n, k = codes.shape
        tiles = packed.reshape(n // BM, k // BK, BM // bm, BK // by, bm // 16, by // 4, 16)
        for row in range(n // BM):
            for part in slabs(k // BK, BM * BK):
                columns = slice(part.start * BK, part.stop * BK)
                yield codes[row * BM : (row + 1) * BM, columns], tiles[row, part].transpose(1, 3, 5, 0, 2, 4)

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        out = np.empty(self.packed_shape(codes.shape), np.uint8)
        for weights, there in self._parts(codes, out):
            there[...] = pair_bytes(weights).reshape(there.shape)
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        codes = np.empty(shape, np.int8)
        wrong = (packed >> 4 > _LARGEST) | (packed & 15 > _LARGEST)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InvalidArgumentError(
                op=f"formats.{self.name}.unpack",
                argument="packed",
                found=f"{packed[at]:#04x} in byte {at}",
                legal="nibbles from 0 to 8",
            )
        for weights, there in self._parts(codes, packed):
            both = np.stack([there >> 4, there & 15], axis=-1)
            weights[...] = of_pairs(both).reshape(weights.shape)
        return codes, np.float32(1)


TL1_FORMAT = TL1(
    name="tl1",
    block=_BLOCK,
    scale_per="tensor",
    scale_stored=False,
    options=("BM", "BK", "bm", "preset"),
    row_multiple=ROWS,
    column_multiple=8,
    widths=(128, 64, 32, 16, 8),
    rule=signs,
    summary="bitnet.cpp's look-up kernels for ARM: pairs of weights in nibbles, BM x BK tiles; scale beside the bytes",
    source="microsoft/BitNet@16da220, utils/convert-hf-to-gguf-bitnet.py, transform_to_tl1; "
    "preset_kernels/*/kernel_config_tl1.ini",
    presets=MappingProxyType(
        {
            "bitnet_b1_58-large": {
                (1536, 4096): Layout(256, 128, 32),
                (1536, 1536): Layout(128, 64, 64),
                (4096, 1536): Layout(256, 128, 32),
            },
            "bitnet_b1_58-3B": {
                (3200, 8640): Layout(160, 64, 32),
                (3200, 3200): Layout(320, 128, 64),
                (8640, 3200): Layout(320, 64, 32),
            },
            "Llama3-8B-1.58-100B-tokens": {
                (14336, 4096): Layout(256, 128, 64),
                (4096, 14336): Layout(256, 128, 32),
                (1024, 4096): Layout(128, 64, 64),
                (4096, 4096): Layout(128, 64, 32),
            },
        }
    ),
)

FORMATS = (TL1_FORMAT,)

WEIGHT_TYPES = (WeightType(dtype="type_38", layouts={"": TL1_FORMAT.name}, written=False),)
