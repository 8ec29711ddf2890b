"""row16, the layout of tritmark's own GPU kernels: 16 consecutive weights of a row in one little-endian uint32.

Weight e (0..15) of a word is the field w + 1 at shift 8 * (e % 4) + 2 * (e / 4). So (word >> 2 * i) & 0x03030303 has
the weights 4 * i to 4 * i + 3 in its bytes 0 to 3, and a dot instruction on four int8 (dp4a) multiplies them by four
consecutive activations. Rows are padded with w = 0 to groups of 64 weights (16 bytes), so every row is aligned for
16-byte loads. The last 64 bytes are the float32 scale and zeros.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats.base import Format, Scale, Shape
from tritmark.kernels.formats.bits import ZERO_BYTE, join_fields, slabs, split_fields

WORD = 16
"""Weights per uint32."""
GROUP = 64
"""Rows are padded to a multiple of this: the weights of 16 bytes."""
TRAILER_BYTES = 64


class Row16(Format):
    """Rows of words of 16 weights, see the module."""

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """One axis: 16 bytes for each group of 64 weights of each row, and 64 for the scale."""
        return (shape[0] * row_bytes(shape[1]) + TRAILER_BYTES,)

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        out = np.empty(self.packed_shape(codes.shape), np.uint8)
        body = out[:-TRAILER_BYTES].reshape(len(codes), -1)
        for part in slabs(len(codes), codes.shape[1]):
            body[part] = join_words(codes[part])
        out[-TRAILER_BYTES:] = 0
        out[-TRAILER_BYTES : -TRAILER_BYTES + 4] = self._stored(scale).reshape(1).view(np.uint8)
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        codes = np.empty(shape, np.int8)
        body = packed[:-TRAILER_BYTES].reshape(shape[0], -1)
        for part in slabs(shape[0], shape[1]):
            padded = split_words(body[part])
            codes[part] = padded[:, : shape[1]]
            wrong = np.flatnonzero(padded[:, shape[1] :].any(axis=1))
            if wrong.size:
                raise InvalidArgumentError(
                    op=f"formats.{self.name}.unpack",
                    argument="packed",
                    found=f"with weights other than 0 in the padded columns of row {part.start + int(wrong[0])}",
                    legal="0 in the padding",
                )
        return codes, np.float32(packed[-TRAILER_BYTES : -TRAILER_BYTES + 4].view("<f4")[0])


def row_bytes(k: int) -> int:
    """Bytes of a row of `k` weights, with its padding."""
    return -(-k // GROUP) * (GROUP // 4)


def join_words(codes: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Rows of codes (rows, K) as the bytes of their words, padded: uint8 (rows, row_bytes(K))."""
    rows, k = codes.shape
    joined = np.full((rows, row_bytes(k) // 4, 4), ZERO_BYTE, np.uint8)
    whole = k // WORD
    words = codes[:, : whole * WORD].reshape(rows, whole, 4, 4)
    join_fields([words[:, :, i] for i in range(4)], joined[:, :whole])
    if k % WORD:
        last = np.zeros((rows, WORD), np.int8)
        last[:, : k % WORD] = codes[:, whole * WORD :]
        quarters = last.reshape(rows, 4, 4)
        join_fields([quarters[:, i] for i in range(4)], joined[:, whole])
    return joined.reshape(rows, -1)


def split_words(packed: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Undo `join_words`: the codes of whole rows (rows, bytes), with padding; the reserved field 3 becomes 2."""
    words = packed.reshape(len(packed), -1, 4)
    codes = np.empty((*words.shape[:2], 4, 4), np.int8)
    split_fields(words, [codes[:, :, i] for i in range(4)])
    return codes.reshape(len(packed), -1)


ROW16 = Row16(
    name="row16",
    block=WORD,
    scale_per="tensor",
    summary="tritmark's GPU kernels: 16 weights of a row in a uint32 for dp4a, rows padded with zero weights to 64",
    source="tritmark, kernels/formats/row16.py",
)

FORMATS = (ROW16,)
