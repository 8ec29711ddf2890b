"""Common parts of ggml's ternary formats: blocks of weights of a row, with codes first and then a float16 scale."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritmark.kernels.formats.base import Format, Scale, Shape

BLOCK = 256
"""Weights per block in ggml's own formats."""


@dataclass(frozen=True, kw_only=True)
class Blocks(Format):
    """Blocks of `block` weights in `code_bytes` bytes and a float16 scale d."""

    code_bytes: int

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """Two axes: N rows of K/block blocks."""
        return shape[0], shape[1] // self.block * (self.code_bytes + 2)

    @abstractmethod
    def _join(self, weights: NDArray[np.int8], body: NDArray[np.uint8]) -> None:
        """Write the bytes of weights (blocks, block) into `body` (blocks, code_bytes), which is strided."""

    @abstractmethod
    def _split(self, body: NDArray[np.uint8], weights: NDArray[np.int8]) -> None:
        """Undo `_join`."""

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        out = np.empty(self.packed_shape(codes.shape), np.uint8)
        blocks = out.reshape(-1, self.code_bytes + 2)
        self._join(codes.reshape(-1, self.block), blocks[:, : self.code_bytes])
        blocks[:, self.code_bytes :] = self._stored(scale).reshape(-1, 1).view(np.uint8)
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        blocks = packed.reshape(-1, self.code_bytes + 2)
        codes = np.empty(shape, np.int8)
        self._split(blocks[:, : self.code_bytes], codes.reshape(-1, self.block))
        return codes, self.stored_scales(packed, shape)

    def stored_scales(self, packed: NDArray[np.uint8], shape: Shape) -> Scale:
        """See Format."""
        blocks = packed.reshape(-1, self.code_bytes + 2)
        stored = np.ascontiguousarray(blocks[:, self.code_bytes :]).view("<f2")
        return stored.astype(np.float32).reshape(shape[0], -1)
