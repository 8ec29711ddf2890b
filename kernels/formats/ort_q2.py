"""The 2-bit weights of ONNX Runtime's MatMulNBits; scales and zero points are separate inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import WeightType
from tritmark.harness.weights.format_names import QMOE, QMOE_LAYOUTS
from tritmark.kernels.formats import affine
from tritmark.kernels.formats.base import LayoutOption, Shape
from tritmark.kernels.formats.sequential import joined_fields, split_into_fields
from tritmark.kernels.formats.zero_points import ZeroPointed

_BLOCK_SIZES = (16, 32, 64, 128, 256)


class BlockQuantized(NamedTuple):
    """Weights (field - zero point) * scale. For weights (N, K) in blocks of B:"""

    packed: NDArray[np.uint8]
    """(N, blocks, B / 4)."""
    scales: NDArray[np.float32]
    """(N, blocks)."""
    zero_points: NDArray[np.uint8] | None
    """(N, blocks / 4 rounded up), four per byte; None: all are 2."""


class MatMulNBits(ZeroPointed):
    """The input B of com.microsoft.MatMulNBits with bits = 2. A weight is (field - zero point) * scale, and each
    `block_size` consecutive weights of a row share a zero point and a scale.

    A ternary weight is the field w + 1 with zero point 1. The operator's default without the input `zero_points` is 2,
    so pass that input; `zero_points` makes it. There is no rule, because ONNX Runtime's quantizer uses all four fields
    and does not keep ternary weights exactly; `quantize_affine` computes what it does.
    """

    def with_block_size(self, block_size: LayoutOption) -> MatMulNBits:
        """The layout for the operator's attribute `block_size`: 16, 32, 64, 128 or 256. Raises InvalidArgumentError for
        any other."""
        if block_size not in _BLOCK_SIZES:
            legal = ", ".join(map(str, _BLOCK_SIZES))
            raise InvalidArgumentError(
                op=f"formats.{self.name}", argument="block_size", found=repr(block_size), legal=legal
            )
        return replace(self, block=int(block_size), group=int(block_size))

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """Three axes as in the operator: N, blocks of a row, bytes of a block."""
        return shape[0], -(-shape[1] // self.block), self.block // 4

    def zero_points(self, shape: Shape, dtype: Any = np.uint8) -> NDArray[Any]:
        """The input `zero_points` for weights (N, K): uint8 (N, blocks / 4 rounded up), four per byte, all 0x55; or
        float32 or float16 (N, blocks), all 1.

        Raises InvalidArgumentError for any other dtype.
        """
        n, blocks = self.scale_shape(self.check_shape(f"formats.{self.name}.zero_points", "shape", shape))
        if dtype == np.uint8:
            return np.full((n, -(-blocks // 4)), 0x55, np.uint8)
        if dtype in (np.float32, np.float16):
            return np.ones((n, blocks), dtype)
        raise InvalidArgumentError(
            op=f"formats.{self.name}.zero_points", argument="dtype", found=str(dtype), legal="uint8, float32 or float16"
        )

    def quantize_affine(
        self, x: NDArray[np.float32], *, block_size: LayoutOption = 128, symmetric: bool = False
    ) -> BlockQuantized:
        """What ONNX Runtime's quantize_matmul_2bits computes from float32 weights (N, K), in its own order (K, N):
        for each block the fields of four levels that include 0.

        Raises InvalidArgumentError for another dtype or shape, and for numbers that are not finite.
        """
        op = f"formats.{self.name}.quantize_affine"
        form = self.with_block_size(block_size)
        n, k = affine.checked(form, op, x)
        # Zeros beyond K change neither edge, because 0 is always a level.
        blocks = np.pad(x, ((0, 0), (0, -k % form.block))).reshape(n, -1, form.block)
        low, high = np.minimum(blocks.min(axis=-1), 0), np.maximum(blocks.max(axis=-1), 0)
        with np.errstate(all="ignore"):
            if symmetric:
                scales = np.where(np.abs(high) > np.abs(low), high, low) / np.float32(-2)
                points = np.full(scales.shape, 2, np.uint8)
            else:
                scales = (high - low) / affine.LARGEST
                level = np.where(scales != 0, -low / scales, low)
                points = np.clip(np.floor(level + np.float32(0.5)), 0, 3).astype(np.uint8)
            inverse = np.where(scales != 0, np.float32(1) / scales, np.float32(0))
            levels = blocks * inverse[..., np.newaxis] + points[..., np.newaxis].astype(np.float32)
        rounded = np.trunc(levels)  # half away from zero
        rounded += (levels - rounded >= 0.5).astype(np.float32) - (levels - rounded <= -0.5)
        rounded.reshape(n, -1)[:, k:] = 0
        stored = None
        if not symmetric:
            padding = (0, 0), (0, -points.shape[1] % 4)
            stored = joined_fields(np.pad(points, padding, constant_values=2))
        return BlockQuantized(affine.packed(rounded, rounded.shape), scales.astype(np.float32, copy=False), stored)

    def dequantize_affine(
        self, packed: NDArray[np.uint8], scales: NDArray[Any], zero_points: NDArray[Any] | None, columns: int
    ) -> NDArray[np.float32]:
        """(field - zero point) * scale in float32 (N, columns), of any four fields; without zero points they are 2."""
        fields = split_into_fields(packed).astype(np.float32)
        points: Any = np.float32(2)
        if zero_points is not None:
            stored = zero_points.reshape(len(packed), -1)
            points = split_into_fields(stored) if stored.dtype == np.uint8 else stored
            points = points[:, : fields.shape[1], np.newaxis].astype(np.float32)
        found: NDArray[np.float32] = (fields - points) * scales.reshape(len(packed), -1, 1).astype(np.float32)
        return found.reshape(len(packed), -1)[:, :columns]

    def laid_out(self, op: str, options: Mapping[str, LayoutOption]) -> MatMulNBits:
        if set(options) - {"block_size"}:
            found, legal = ", ".join(sorted(options)), "block_size"
            raise InvalidArgumentError(op=op, argument="layout options", found=found, legal=legal)
        return self.with_block_size(options["block_size"]) if options else self

    def _zero_points(self, given: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.int8]:
        """Zero points as int8 (N, blocks)."""
        op, (n, blocks) = f"formats.{self.name}.unpack", self.scale_shape((shape[0], shape[1]))
        found = (
            f"{given.dtype} of shape {given.shape}" if isinstance(given, np.ndarray) else f"a {type(given).__name__}"
        )
        packed = (n, -(-blocks // 4))
        if isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.shape in (packed, (math.prod(packed),)):
            return split_into_fields(given.reshape(packed))[:, :blocks].astype(np.int8)
        is_float = isinstance(given, np.ndarray) and given.dtype in (np.float32, np.float16)
        if not is_float or given.shape not in ((n, blocks), (n * blocks,)):
            legal = f"uint8 of shape {packed}, or float32 or float16 of shape {(n, blocks)}"
            raise InvalidArgumentError(op=op, argument="zero_points", found=found, legal=legal)
        whole = np.isin(given, (0, 1, 2, 3))
        if not whole.all():
            found = f"{given[~whole][0]}, which gives weights that are not ternary"
            raise InvalidArgumentError(op=op, argument="zero_points", found=found, legal="0, 1, 2 or 3")
        return given.astype(np.int8).reshape(n, blocks)


ORT_Q2 = MatMulNBits(
    name="ort_q2",
    block=128,
    group=128,
    padding=1,
    scale_per="group",
    scale_stored=False,
    options=("block_size",),
    summary="ONNX Runtime's MatMulNBits, bits = 2: four weights of a row per byte, scales and zero points beside them",
    source="ONNX Runtime, com.microsoft.MatMulNBits",
)

FORMATS = (ORT_Q2,)

WEIGHT_TYPES = (WeightType(dtype=QMOE, layouts=QMOE_LAYOUTS, usual=False, written=False),)
