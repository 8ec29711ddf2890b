"""base3: five ternary weights of a row in a byte, 1.6 bits a weight.

Byte j of a row is the sum of (w + 1) * 3^i over its weights w at 5 * j + i, i = 0 to 4, so 0 to 242. Rows are padded
with weights 0 to whole bytes and follow one another; the last 4 bytes are the scale, a little-endian float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats.base import Format, Scale, Shape

DIGITS = 5
POWERS = 3 ** np.arange(DIGITS, dtype=np.uint8)
LARGEST = 3**DIGITS - 1
SCALE_BYTES = 4


def row_bytes(k: int) -> int:
    """Bytes of a row of `k` weights, its padding included."""
    return -(-k // DIGITS)


@dataclass(frozen=True, kw_only=True)
class Base3(Format):
    """Rows of bytes with five weights each, see the module. Format checks arguments and rounds scales."""

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """One axis: a byte for each five weights of each row, and four for the scale."""
        return (shape[0] * row_bytes(shape[1]) + SCALE_BYTES,)

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        rows, k = codes.shape
        digits = np.ones((rows, row_bytes(k) * DIGITS), np.uint8)
        digits[:, :k] = codes + 1
        body = digits.reshape(-1, DIGITS) @ POWERS
        return np.concatenate([body, self._stored(scale).reshape(1).view(np.uint8)])

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        body = packed[:-SCALE_BYTES]
        wrong = np.flatnonzero(body > LARGEST)
        if wrong.size:
            raise self._refused(f"{body[wrong[0]]} at byte {wrong[0]}", f"0 to {LARGEST}")
        digits = body[:, np.newaxis] // POWERS % np.uint8(3)
        codes = digits.reshape(shape[0], -1).astype(np.int8) - np.int8(1)
        wrong = np.flatnonzero(codes[:, shape[1] :].any(axis=1))
        if wrong.size:
            raise self._refused(f"with weights other than 0 in the padding of row {wrong[0]}", "0 in the padding")
        return np.ascontiguousarray(codes[:, : shape[1]]), np.float32(packed[-SCALE_BYTES:].view("<f4")[0])

    def _refused(self, found: str, legal: str) -> InvalidArgumentError:
        return InvalidArgumentError(op=f"formats.{self.name}.unpack", argument="packed", found=found, legal=legal)


BASE3 = Base3(
    name="base3",
    block=DIGITS,
    scale_per="tensor",
    summary="five weights of a row in a byte, as digits of base 3",
    source="tritmark-base3, format.py",
)
