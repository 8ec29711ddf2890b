"""IQ1_BN and IQ2_BN of ik_llama.cpp: each row is its scale and then blocks of 64 weights."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.spec import WeightType
from tritmark.kernels.formats.base import Format, Scale, Shape
from tritmark.kernels.formats.bits import join_fields, slabs, split_fields
from tritmark.kernels.formats.digits import BYTE, CODE, check_bytes, written

BLOCK = 64
"""Weights per block."""
_WORD = np.dtype("V16")
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)
"""The powers of the digits of a byte in IQ1_BN; the first weight is the least significant digit."""
_WRITTEN = {5: written(range(243)), 4: written(range(81))}
"""The bytes that five digits produce, and those of four digits, where the highest is 0."""


@dataclass(frozen=True, kw_only=True)
class RowsOfBlocks(Format):
    """Rows of a scale and K / BLOCK blocks of `block_bytes` bytes.

    `quantize` follows ik_llama.cpp. A row's scale is its largest magnitude, ignoring NaN. A weight below half of it is
    0, any other has its sign, including NaN. So a row of zeros becomes a row of ones with scale 0.
    """

    block_bytes: int

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """Two axes: N rows of a scale and K/64 blocks."""
        return shape[0], self._scale_bytes + shape[1] // BLOCK * self.block_bytes

    @property
    def _scale_bytes(self) -> int:
        return np.dtype(self.scale_dtype).itemsize

    @abstractmethod
    def _join(self, weights: NDArray[np.int8], body: NDArray[np.uint8]) -> None:
        """Write the bytes of weights (blocks, BLOCK) into `body` (blocks, block_bytes)."""

    @abstractmethod
    def _split(self, body: NDArray[np.uint8], weights: NDArray[np.int8], first: int) -> None:
        """Undo `_join`; `first` is the number of the first of these blocks."""

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        n, k = codes.shape
        out = np.empty(self.packed_shape((n, k)), np.uint8)
        out[:, : self._scale_bytes] = self._stored(scale).reshape(n, 1).view(np.uint8)
        for part in slabs(n, k):
            weights = codes[part].reshape(-1, BLOCK)
            body = np.empty((len(weights), self.block_bytes), np.uint8)
            self._join(weights, body)
            out[part, self._scale_bytes :] = body.reshape(part.stop - part.start, -1)
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        rows = packed.reshape(shape[0], -1)
        codes = np.empty(shape, np.int8)
        for part in slabs(*shape):
            body = np.ascontiguousarray(rows[part, self._scale_bytes :]).reshape(-1, self.block_bytes)
            self._split(body, codes[part].reshape(-1, BLOCK), part.start * (shape[1] // BLOCK))
        return codes, self.stored_scales(packed, shape)

    def stored_scales(self, packed: NDArray[np.uint8], shape: Shape) -> Scale:
        """The scales of the rows alone, without their codes."""
        rows = packed.reshape(shape[0], -1)
        stored = np.ascontiguousarray(rows[:, : self._scale_bytes]).view(np.dtype(self.scale_dtype).newbyteorder("<"))
        return stored.astype(np.float32).reshape(-1)


class IQ2BN(RowsOfBlocks):
    """Weight e of a block is the field w + 1 at shift 2 * (e / 16) of byte e % 16."""

    def _join(self, weights: NDArray[np.int8], body: NDArray[np.uint8]) -> None:
        quarters = weights.reshape(-1, 4, 16)
        join_fields([quarters[:, g] for g in range(4)], body)

    def _split(self, body: NDArray[np.uint8], weights: NDArray[np.int8], first: int) -> None:
        fields = np.empty((4, *body.shape), np.int8)
        split_fields(body, list(fields))
        # Moved as words of 16 bytes: NumPy's loops over single bytes of short rows take six times as long.
        weights.view(_WORD)[...] = fields.view(_WORD)[:, :, 0].T


class IQ1BN(RowsOfBlocks):
    """For each 16 weights, three bytes of five base-3 digits w + 1; the four remaining weights are in byte 12."""

    def _join(self, weights: NDArray[np.int8], body: NDArray[np.uint8]) -> None:
        groups = weights.reshape(-1, 4, 16).view(np.uint8)
        for group in range(4):
            for at in range(3):
                digits = groups[:, group, 5 * at : 5 * at + 5]
                body[:, 3 * group + at] = BYTE[_values(digits)]
        body[:, 12] = BYTE[_values(groups[:, :, 15])]

    def _split(self, body: NDArray[np.uint8], weights: NDArray[np.int8], first: int) -> None:
        op = f"formats.{self.name}.unpack"
        check_bytes(op, body[:, :12], _WRITTEN[5], 5, block=first, at=0)
        check_bytes(op, body[:, 12:], _WRITTEN[4], 4, block=first, at=12)
        groups = weights.reshape(-1, 4, 16)
        for group in range(4):
            for digit in range(15):
                groups[:, group, digit] = CODE[4 - digit % 5][body[:, 3 * group + digit // 5]]
            groups[:, group, 15] = CODE[4 - group][body[:, 12]]


def _values(digits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The values of codes (blocks, count); the first is the least significant digit minus 1. Sums are modulo 256."""
    powers = _POWERS[: digits.shape[1]]
    values: NDArray[np.uint8] = (digits * powers).sum(axis=1, dtype=np.uint8)
    values += powers.sum(dtype=np.uint8)
    return values


def _halves(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
    """The rule of quantize_iq1_bn and quantize_iq2_bn."""
    codes = np.empty(x.shape, np.int8)
    scales = np.empty(len(x), np.float32)
    for part in slabs(len(x), x.shape[1] * x.itemsize):
        magnitudes = np.abs(x[part])
        scales[part] = np.fmax.reduce(magnitudes, axis=1, initial=0)
        small = magnitudes < (np.float32(0.5) * scales[part])[:, np.newaxis]
        codes[part] = np.where(small, 0, np.where(x[part] < 0, -1, 1))
    return codes, scales


_SOURCE = "ikawrakow/ik_llama.cpp@8337e4cd3, ggml/src/iqk/iqk_quantize.cpp"

IQ1_BN = IQ1BN(
    name="iq1_bn",
    block=BLOCK,
    column_multiple=BLOCK,
    block_bytes=13,
    scale_per="row",
    scale_dtype="float16",
    rule=_halves,
    summary="ik_llama.cpp: rows of a float16 scale and blocks of 64 weights in 13 bytes, five per byte",
    source=f"{_SOURCE}, quantize_iq1_bn",
)

IQ2_BN = IQ2BN(
    name="iq2_bn",
    block=BLOCK,
    column_multiple=BLOCK,
    block_bytes=16,
    scale_per="row",
    rule=_halves,
    summary="ik_llama.cpp: rows of a float32 scale and blocks of 64 weights in 16 bytes",
    source=f"{_SOURCE}, quantize_iq2_bn",
)

FORMATS = (IQ1_BN, IQ2_BN)

WEIGHT_TYPES = tuple(WeightType(dtype=each.name, layouts={"": each.name}) for each in FORMATS)
