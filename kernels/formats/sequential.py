"""Layouts with the weights of a row in sequence, four per byte, the first in the lowest bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritmark.kernels.formats.base import Format, Scale, Shape
from tritmark.kernels.formats.bits import slabs


@dataclass(frozen=True, kw_only=True)
class Sequential(Format):
    """Rows of whole blocks: byte k / 4 of a row holds weight k at shift 2 * (k % 4).

    Fields beyond K in a row are written as `padding`; `unpack` ignores them, like the originals. None of these layouts
    stores a scale.
    """

    padding: int = 0

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """Two axes: N rows of whole blocks."""
        return shape[0], -(-shape[1] // self.block) * self.block // 4

    def scale_shape(self, shape: Shape) -> tuple[int, ...]:
        """As in other formats; the last group of a row may be shorter."""
        return (shape[0], -(-shape[1] // self.group)) if self.scale_per == "group" else super().scale_shape(shape)

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        shape = self.packed_shape((codes.shape[0], codes.shape[1]))
        out = np.empty((len(codes), math.prod(shape[1:])), np.uint8)
        self._pack_rows(codes, out)
        return out.reshape(shape)

    def _pack_rows(self, codes: NDArray[np.int8], out: NDArray[np.uint8]) -> None:
        """Write the bytes of each row of codes into a row of `out`."""
        n, k = codes.shape
        field_of = np.zeros(256, np.uint8)
        field_of[np.array(self.codes, np.int8).view(np.uint8)] = self.fields
        for part in slabs(n, k):
            fields = np.full((part.stop - part.start, 4 * out.shape[1]), self.padding, np.uint8)
            fields[:, :k] = field_of[codes[part].view(np.uint8)]
            out[part] = fields[:, ::4]
            for place in (1, 2, 3):
                out[part] |= fields[:, place::4] << 2 * place

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        code_of = np.full(4, 2 if 2 not in self.codes else -128, np.int8)
        code_of[list(self.fields)] = self.codes
        rows = packed.reshape(shape[0], -1)
        codes = np.empty(shape, np.int8)
        for part in slabs(*shape):
            for place in range(4):
                into = codes[part, place::4]
                into[...] = code_of[rows[part, : into.shape[1]] >> 2 * place & 3]
        return codes, np.ones(self.scale_shape(shape), np.float32)[()]


def joined_fields(fields: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bytes (..., K / 4) of fields 0 to 3 (..., K)."""
    joined: NDArray[Any] = fields[..., ::4] | fields[..., 1::4] << 2 | fields[..., 2::4] << 4 | fields[..., 3::4] << 6
    return joined


def split_into_fields(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The inverse of `joined_fields`."""
    fields: NDArray[Any] = packed[..., np.newaxis] >> np.arange(0, 8, 2, dtype=np.uint8) & 3
    return fields.reshape(*packed.shape[:-1], -1)
