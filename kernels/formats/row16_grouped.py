"""row16_g32, row16_g64, row16_g128 and row16_g256: the words of row16, with a float16 scale for each group of 32 to 256
weights of a row.

The rows of words come first, as in row16, padded with w = 0 to whole 64 weights. Behind them are the scales of the
first group of every row, then those of the second, and so on. So the scales of neighbouring rows, which threads of a
warp read together, are adjacent. The scales of a group are padded with zeros to whole 8 rows, so that each group begins
at a multiple of 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats.base import Format, Scale, Shape
from tritmark.kernels.formats.bits import slabs
from tritmark.kernels.formats.row16 import WORD, join_words, row_bytes, split_words

ROWS = 8
"""The scales of a group are padded to a multiple of this: the scales of 16 bytes."""


@dataclass(frozen=True, kw_only=True)
class Row16Grouped(Format):
    """Rows of words of 16 weights, then scales, see the module."""

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """One axis: 16 bytes for each 64 weights of each row, then 2 for each group of each row, padded."""
        return (shape[0] * row_bytes(shape[1]) + shape[1] // self.group * scales_bytes(shape[0]),)

    def row_ranges(self, shape: Shape, begin: int, end: int) -> list[tuple[int, int]]:
        """See Format: the words, then the scales of each group."""
        row, column, behind = row_bytes(shape[1]), scales_bytes(shape[0]), shape[0] * row_bytes(shape[1])
        places = (behind + group * column for group in range(shape[1] // self.group))
        return [(begin * row, end * row), *((place + 2 * begin, place + 2 * end) for place in places)]

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        out = np.empty(self.packed_shape(codes.shape), np.uint8)
        words, scales = self._parts(out, codes.shape)
        for part in slabs(len(codes), codes.shape[1]):
            words[part] = join_words(codes[part])
        scales[:, : len(codes)] = self._stored(scale).T
        scales[:, len(codes) :] = 0
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        codes = np.empty(shape, np.int8)
        words, scales = self._parts(packed, shape)
        for part in slabs(*shape):
            padded = split_words(words[part])
            codes[part] = padded[:, : shape[1]]
            wrong = np.flatnonzero(padded[:, shape[1] :].any(axis=1))
            if wrong.size:
                self._refuse(f"with weights other than 0 in the padded columns of row {part.start + int(wrong[0])}")
        behind = np.flatnonzero(scales[:, shape[0] :].view(np.uint16).any(axis=1))
        if behind.size:
            self._refuse(f"with scales other than 0 behind the last row, of group {int(behind[0])}")
        return codes, self.stored_scales(packed, shape)

    def stored_scales(self, packed: NDArray[np.uint8], shape: Shape) -> Scale:
        """See Format."""
        return np.ascontiguousarray(self._parts(packed, shape)[1][:, : shape[0]].T, np.float32)

    def _parts(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.uint8], NDArray[np.float16]]:
        """Views of the words, a row of bytes for each row of weights, and of the scales, a row for each group."""
        behind = shape[0] * row_bytes(shape[1])
        scales = packed[behind:].view("<f2").reshape(shape[1] // self.group, -1)
        return packed[:behind].reshape(shape[0], -1), scales

    def _refuse(self, found: str) -> None:
        raise InvalidArgumentError(
            op=f"formats.{self.name}.unpack", argument="packed", found=found, legal="0 in the padding"
        )


def scales_bytes(n: int) -> int:
    """Bytes of the scales of a group of each of `n` rows, with their padding."""
    return -(-n // ROWS) * ROWS * 2


FORMATS = tuple(
    Row16Grouped(
        name=f"row16_g{group}",
        block=WORD,
        column_multiple=group,
        scale_per="group",
        group=group,
        scale_dtype="float16",
        summary=f"tritmark's GPU kernels: the words of row16, then float16 scales for groups of {group} weights",
        source="tritmark, kernels/formats/row16_grouped.py",
    )
    for group in (256, 128, 64, 32)
)
"""The format of each size of groups. Weights of other formats are repacked into the first that holds them, so that no
scale is repeated without need."""
