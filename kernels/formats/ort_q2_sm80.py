"""MatMulNBits weights, bits = 2, in the order of ONNX Runtime's fpA_intB kernels on CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.weights.format_names import ORT_Q2_SM80
from tritmark.kernels.formats.base import LayoutOption, Scale, Shape
from tritmark.kernels.formats.bits import slabs
from tritmark.kernels.formats.ort_q2 import BlockQuantized, MatMulNBits
from tritmark.kernels.formats.sequential import joined_fields, split_into_fields

_BLOCK_SIZES = (64, 128)
_ROWS, _COLUMNS = 8, 64
"""Rows and columns of a tile."""


class PrepackedMatMulNBits(MatMulNBits):
    """The input B of com.microsoft.MatMulNBits with bits = 2 and weight_prepacked = 1: the layout W2_A16 for SM80, also
    read by newer GPUs. Fields, scales and zero points are those of `ort_q2`.

    Tiles of 8 rows and 64 columns, row by row of tiles. A tile is 32 little-endian uint32; word 4 * (n % 8) + k % 8 / 2
    holds the columns of row n with this k % 8 / 2: the eight even ones in the lower half, then the odd ones, each in
    ascending order from the lowest bits up.

    Its kernels also need N to be a multiple of 128; the layout does not.
    """

    def with_block_size(self, block_size: LayoutOption) -> PrepackedMatMulNBits:
        """The layout for the operator's attribute `block_size`: 64 or 128, of which K must be a multiple. Raises
        InvalidArgumentError for any other."""
        if block_size not in _BLOCK_SIZES:
            legal = " or ".join(map(str, _BLOCK_SIZES))
            raise InvalidArgumentError(
                op=f"formats.{self.name}", argument="block_size", found=repr(block_size), legal=legal
            )
        size = int(block_size)
        return replace(self, block=size, group=size, column_multiple=size)

    def quantize_affine(
        self, x: NDArray[np.float32], *, block_size: LayoutOption = 128, symmetric: bool = False
    ) -> BlockQuantized:
        found = super().quantize_affine(x, block_size=block_size, symmetric=symmetric)
        fields = split_into_fields(found.packed.reshape(len(x), -1)).view(np.int8)
        packed = self._of_any_field()._pack(fields, np.float32(1))
        return found._replace(packed=packed.reshape(found.packed.shape))

    def dequantize_affine(
        self, packed: NDArray[np.uint8], scales: NDArray[Any], zero_points: NDArray[Any] | None, columns: int
    ) -> NDArray[np.float32]:
        shape = len(packed), 4 * packed[0].size
        fields, _ = self._of_any_field()._unpack(np.ascontiguousarray(packed).reshape(-1), shape)
        in_sequence = joined_fields(fields.view(np.uint8)).reshape(packed.shape)
        return super().dequantize_affine(in_sequence, scales, zero_points, columns)

    def _of_any_field(self) -> PrepackedMatMulNBits:
        return replace(self, codes=(0, 1, 2, 3), fields=(0, 1, 2, 3))

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        n, k = codes.shape
        ordered = np.empty((n // _ROWS, k // _COLUMNS, _ROWS, 4, 2, 8), np.int8)
        for rows, tiles, part in _parts(codes):
            # Axes: row of tiles, n % 8, tile, k % 64 / 8, k % 8 / 2, k % 2.
            found = part.reshape(len(part) // _ROWS, _ROWS, -1, 8, 4, 2)
            ordered[rows, tiles] = found.transpose(0, 2, 1, 4, 5, 3)
        return super()._pack(ordered.reshape(n, k), scale)

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        n, k = shape
        stored, scale = super()._unpack(packed, shape)
        ordered = stored.reshape(n // _ROWS, k // _COLUMNS, _ROWS, 4, 2, 8)
        codes = np.empty(shape, np.int8)
        for rows, tiles, part in _parts(codes):
            part[...] = ordered[rows, tiles].transpose(0, 2, 1, 5, 3, 4).reshape(part.shape)
        return codes, scale


def _parts(codes: NDArray[np.int8]) -> Iterator[tuple[slice, slice, NDArray[np.int8]]]:
    """Rows of tiles, tiles in them, and their codes."""
    n, k = codes.shape
    for rows in slabs(n // _ROWS, _ROWS * k):
        for tiles in slabs(k // _COLUMNS, (rows.stop - rows.start) * _ROWS * _COLUMNS):
            yield (
                rows,
                tiles,
                codes[_ROWS * rows.start : _ROWS * rows.stop, _COLUMNS * tiles.start : _COLUMNS * tiles.stop],
            )


FORMAT = PrepackedMatMulNBits(
    name=ORT_Q2_SM80,
    block=128,
    group=128,
    row_multiple=_ROWS,
    column_multiple=128,
    scale_per="group",
    scale_stored=False,
    options=("block_size",),
    summary="ONNX Runtime's MatMulNBits, bits = 2, weight_prepacked = 1: tiles of 8 rows and 64 columns, for CUDA",
    source="ONNX Runtime, fpA_intB weights W2_A16 for SM80 (pull requests 29499 and 32699)",
)

FORMATS = (FORMAT,)
