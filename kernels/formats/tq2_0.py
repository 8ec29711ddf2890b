"""TQ2_0, the 2-bit ternary format of ggml: blocks of 256 weights of a row in 66 bytes, with a float16 scale each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritmark.kernels.formats.absmax import absmax
from tritmark.kernels.formats.base import Format, Scale, Shape
from tritmark.kernels.formats.bits import join_fields, slabs, split_fields

_BLOCK = 256
_CODE_BYTES = 64
_BLOCK_BYTES = _CODE_BYTES + 2


@dataclass(frozen=True, kw_only=True)
class TQ2(Format):
    """Half blocks of 128 weights in 32 bytes: weight j in byte j % 32, the first 32 in the lowest bits; then the float16 scale d.

    `quantize` follows libggml on x86-64: d is float16(a), a the largest magnitude, and the field is (lroundf(x * (1/a)) + 1) & 3, in
    float32. What it does to unusual values is kept: a NaN makes it forget the magnitudes before it; a product that is NaN, infinite or
    beyond int64 gives w = 0; and magnitudes before a NaN may exceed a, which can give the reserved field 3 that `unpack` refuses.
    """

    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """Two axes: N rows of K/256 blocks of 66 bytes."""
        return shape[0], shape[1] // _BLOCK * _BLOCK_BYTES

    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        n, k = codes.shape
        out = np.empty((n, k // _BLOCK * _BLOCK_BYTES), np.uint8)
        blocks = out.reshape(-1, _BLOCK_BYTES)
        body = blocks[:, :_CODE_BYTES].reshape(-1, 2, 32)
        groups = codes.reshape(-1, 2, 4, 32)
        for part in slabs(len(groups), _BLOCK):
            join_fields([groups[part, :, g] for g in range(4)], body[part])
        blocks[:, _CODE_BYTES:] = self._stored(scale).reshape(-1, 1).view(np.uint8)
        return out

    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        blocks = packed.reshape(-1, _BLOCK_BYTES)
        body = blocks[:, :_CODE_BYTES].reshape(-1, 2, 32)
        codes = np.empty(shape, np.int8)
        groups = codes.reshape(-1, 2, 4, 32)
        for part in slabs(len(groups), _BLOCK):
            split_fields(body[part], [groups[part, :, g] for g in range(4)])
        stored = np.ascontiguousarray(blocks[:, _CODE_BYTES:]).view("<f2")
        return codes, stored.astype(np.float32).reshape(shape[0], -1)


def _rule(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
    """The rule of quantize_row_tq2_0_ref: of each rounded quotient, plus 1, two bits are kept."""
    codes, scales = absmax(x, _BLOCK)
    codes += 1
    codes &= 3
    codes -= 1
    return codes, scales


TQ2_0 = TQ2(
    name="tq2_0",
    block=_BLOCK,
    column_multiple=_BLOCK,
    scale_per="block",
    scale_dtype="float16",
    rule=_rule,
    summary="ggml: blocks of 256 weights in 66 bytes, float16 scale each",
    source="libggml 0.25.3, quantize_row_tq2_0_ref",
)
