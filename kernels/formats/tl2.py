"""TL2, the format of bitnet.cpp's look-up kernels for x86: triples of weights as a nibble and a sign bit.

Columns in whole tiles of BK are triples v = 9 w0 + 3 w1 + w2, stored as all nibbles |v| and then all signs. The
remaining columns, a multiple of 32, are pairs as in TL1. 32 rows are interleaved in groups of 8, in the order 0, 2, 1,
3, so that after widening to int16 the halves of a vector are rows 0 to 15 and 16 to 31. The scale is beside the bytes.

The three parts, in tiles of BM rows and BK columns, row of tiles by row of tiles:
- nibbles: 32 bytes for each 32 rows and 6 columns, one byte per row, the first triple in the high nibble;
- signs: 16 words of 16 bits for each 32 rows and 24 columns; bit 15 - (2t + h) of word r is set if triple t of row
  r + 16h is negative;
- pairs, in tiles of BM rows and 32 columns: 32 bytes for each 32 rows and 4 columns, the first pair in the high nibble.

The original pads with zeros to a size that depends only on the shape. That size is too small for more than 256 columns
of pairs, where the original raises, so such shapes are refused. It also raises for any bm except 32, such as that of
the published layout of 4096 x 1536 in bitnet_b1_58-large. The rule's layout of that shape is the one that the
original's setup_env.py requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import WeightType
from tritmark.kernels.formats.base import Scale, Shape
from tritmark.kernels.formats.bits import slabs
from tritmark.kernels.formats.tl_layout import NO_CODE, ROWS, TL, Layout, nibbles, of_pairs, pair_bytes, signs

_LARGEST = 13
"""The largest |v|."""
_PAIRED = 32
"""Columns per tile of pairs."""
_MOST_PAIRED = 256
"""Largest number of columns of pairs in the original."""
_TRIPLES = np.array([(v // 9 % 3 - 1, v // 3 % 3 - 1, v % 3 - 1) for v in range(27)], np.int8)
"""The weights of each v + 13."""
_SPREAD = np.array([sum((byte >> bit & 1) << 2 * bit for bit in range(8)) for byte in range(256)], np.uint16)
"""The bits of a byte, each preceded by a 0."""


class TL2(TL):
    """TL2, see the module."""

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """One axis, in the original's arithmetic."""
        n, k = shape
        return ((k - 256) * n // 3 * 5 // 8 + 256 * n // 2 * 4 // 8,)

    def rows_apart(self, shape: Shape) -> int:
        return shape[0]

    def unfit(self, layout: Layout) -> str | None:
        fits = layout.bm == ROWS and layout.BM % ROWS == 0 and layout.BK % 24 == 0
        return None if fits else "bm of 32, BM a multiple of 32, BK of 24"

    def columns_of(self, layout: Layout) -> int:
        return 1

    def check_shape(self, op: str, argument: str, shape: tuple[int, ...]) -> Shape:
        checked = super().check_shape(op, argument, shape)
        paired = checked[1] % self.layout(op, checked).BK
        if paired % _PAIRED or paired > _MOST_PAIRED:
            found = f"of shape {checked}, with {paired} columns after whole tiles"
            raise InvalidArgumentError(
                op=op, argument=argument, found=found, legal="a multiple of 32 of these columns, at most 256"
            )
        return checked

    def _sections(self, shape: Shape) -> tuple[Layout, int, tuple[int, int, int]]:
        """The layout, the number of columns in triples, and the ends of nibbles, signs and pairs."""
        layout = self.layout(f"formats.{self.name}", shape)
        n, k = shape
        tripled = k - k % layout.BK
        ends = np.cumsum([n * tripled // 6, n * tripled // 24, n * (k - tripled) // 4])
        return layout, tripled, (int(ends[0]), int(ends[1]), int(ends[2]))

    def _tripled(
        self, codes: NDArray[np.int8], packed: NDArray[np.uint8], words: NDArray[np.uint8], layout: Layout
    ) -> Iterator[tuple[NDArray[np.int8], NDArray[np.uint8], NDArray[np.uint16]]]:
        """Codes (rows, columns) of some tiles at a time, their nibbles as (32 rows, half, 8 rows, row, tile,
        6 columns), and their signs as (32 rows, row of 16, tile, 24 columns)."""
        n, k = codes.shape
        BM, BK, _ = layout
        there = packed.reshape(n // BM, k // BK, BM // ROWS, BK // 6, 2, 2, 8)
        signs_there = words.view("<u2").reshape(n // BM, k // BK, BM // ROWS, BK // 24, 16)
        for row in range(n // BM):
            for part in slabs(k // BK, BM * BK):
                yield (
                    codes[row * BM : (row + 1) * BM, part.start * BK : part.stop * BK],
                    there[row, part].transpose(1, 4, 3, 5, 0, 2),
                    signs_there[row, part].transpose(1, 3, 0, 2),
                )

    def _paired(
        self, codes: NDArray[np.int8], packed: NDArray[np.uint8], BM: int
    ) -> Iterator[tuple[NDArray[np.int8], NDArray[np.uint8]]]:
        """Codes (rows, columns) of one row of tiles at a time, and their bytes as (32 rows, half, 8 rows, row, tile,
        four columns)."""
        n, k = codes.shape
        there = packed.reshape(n // BM, k // _PAIRED, BM // ROWS, _PAIRED // 4, 2, 2, 8)
        for row in range(n // BM):
            yield codes[row * BM : (row + 1) * BM], there[row].transpose(1, 4, 3, 5, 0, 2)

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        layout, tripled, (nibbled, words, end) = self._sections(codes.shape)
        out = np.zeros(self.packed_shape(codes.shape), np.uint8)
        for weights, there, signs_there in self._tripled(codes[:, :tripled], out[:nibbled], out[nibbled:words], layout):
            v = weights[:, ::3] * np.int8(9)
            v += weights[:, 1::3] * np.int8(3)
            v += weights[:, 2::3]
            if (weights == NO_CODE).any():  # 0, the result of the original's cast of NaN to uint8 on x86
                v[(weights == NO_CODE).reshape(*v.shape, 3).any(axis=-1)] = 0
            negative = _SPREAD[np.packbits(v < 0, axis=1)].reshape(len(v) // ROWS, 2, *signs_there.shape[1:])
            np.bitwise_or(negative[:, 0] << 1, negative[:, 1], out=signs_there)
            there[...] = nibbles(np.abs(v, out=v).view(np.uint8)).reshape(there.shape)
        for weights, there in self._paired(codes[:, tripled:], out[words:end], layout.BM):
            there[...] = pair_bytes(weights).reshape(there.shape)
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        layout, tripled, (nibbled, words, end) = self._sections(shape)
        self._check(packed, 0, nibbled, _LARGEST)
        self._check(packed, words, end, 8)
        if packed[end:].any():
            at = end + int(np.argmax(packed[end:] != 0))
            self._refuse(f"{packed[at]:#04x} in byte {at}", "zero bytes in the padding")
        codes = np.empty(shape, np.int8)
        for weights, there, signs_there in self._tripled(
            codes[:, :tripled], packed[:nibbled], packed[nibbled:words], layout
        ):
            size = np.stack([there >> 4, there & 15], axis=-1).reshape(len(weights), -1).view(np.int8)
            # From the top bit: half 0 of triple 0, half 1 of triple 0, half 0 of triple 1.
            bits = np.unpackbits(
                signs_there.astype(">u2", order="C").view(np.uint8).reshape(*signs_there.shape, 2), axis=-1
            )
            halves = bits.reshape(*signs_there.shape, 8, 2).transpose(0, 5, 1, 2, 3, 4)
            negative = halves.reshape(size.shape).view(bool)
            if (negative & (size == 0)).any():
                self._refuse("the sign of a triple of zeros", "no sign bit where |v| is 0")
            np.negative(size, where=negative, out=size)
            weights[...] = _TRIPLES[size + 13].reshape(weights.shape)
        for weights, there in self._paired(codes[:, tripled:], packed[words:end], layout.BM):
            weights[...] = of_pairs(np.stack([there >> 4, there & 15], axis=-1)).reshape(weights.shape)
        return codes, np.float32(1)

    def _check(self, packed: NDArray[np.uint8], begin: int, end: int, largest: int) -> None:
        """Raise InvalidArgumentError for a nibble above `largest` in these bytes."""
        wrong = (packed[begin:end] >> 4 > largest) | (packed[begin:end] & 15 > largest)
        if wrong.any():
            at = begin + int(np.argmax(wrong))
            self._refuse(f"{packed[at]:#04x} in byte {at}", f"nibbles from 0 to {largest}")

    def _refuse(self, found: str, legal: str) -> NoReturn:
        op = f"formats.{self.name}.unpack"
        raise InvalidArgumentError(op=op, argument="packed", found=found, legal=legal)


TL2_FORMAT = TL2(
    name="tl2",
    block=768,
    scale_per="tensor",
    scale_stored=False,
    options=("BM", "BK", "bm", "preset"),
    row_multiple=ROWS,
    column_multiple=_PAIRED,
    widths=(96,),
    rule=signs,
    summary="bitnet.cpp's look-up kernels for x86: triples of weights in nibbles and signs, the rest as pairs; scale "
    "beside the bytes",
    source="microsoft/BitNet@16da220, utils/convert-hf-to-gguf-bitnet.py, transform_to_tl2; "
    "preset_kernels/*/kernel_config_tl2.ini",
    presets=MappingProxyType(
        {
            "bitnet_b1_58-large": {
                (1536, 4096): Layout(256, 96, 32),
                (1536, 1536): Layout(128, 192, 32),
                (4096, 1536): Layout(256, 96, 64),
            },
            "bitnet_b1_58-3B": {
                (3200, 8640): Layout(160, 96, 32),
                (3200, 3200): Layout(320, 96, 32),
                (8640, 3200): Layout(320, 96, 32),
            },
            "Llama3-8B-1.58-100B-tokens": {
                (14336, 4096): Layout(256, 96, 32),
                (4096, 14336): Layout(128, 96, 32),
                (1024, 4096): Layout(256, 96, 32),
                (4096, 4096): Layout(128, 96, 32),
            },
        }
    ),
)

FORMATS = (TL2_FORMAT,)

WEIGHT_TYPES = (WeightType(dtype="type_39", layouts={"": TL2_FORMAT.name}, written=False),)
