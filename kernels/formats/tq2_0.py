"""TQ2_0, the 2-bit ternary format of ggml: blocks of 256 weights of a row in 66 bytes, with a float16 scale each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritmark.kernels.formats.base import Format, Scale, Shape
from tritmark.kernels.formats.bits import join_fields, slabs, split_fields

_BLOCK = 256
_CODE_BYTES = 64
_BLOCK_BYTES = _CODE_BYTES + 2
_MULTIPLES_OF_4_FROM = np.float32(2.0**25)
"""From here on every float32 is a multiple of 4, so that the two bits libggml keeps of it are zero."""


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


def _absmax(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
    """The rule of quantize_row_tq2_0_ref: codes (N, K), scales (N, K/256)."""
    n, k = x.shape
    blocks = x.reshape(-1, _BLOCK)
    codes = np.empty(blocks.shape, np.int8)
    scales = np.empty(len(blocks), np.float32)
    for part in slabs(len(blocks), _BLOCK * x.itemsize):
        codes[part], scales[part] = _absmax_blocks(blocks[part])
    return codes.reshape(n, k), scales.reshape(n, -1)


def _absmax_blocks(blocks: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    largest = _largest(blocks)
    with np.errstate(all="ignore"):
        inverse = np.where(largest == 0, np.float32(0), np.float32(1) / largest)
        scaled = blocks * inverse[:, None]
        # lroundf gives LONG_MIN for what has no int64, of which the two bits that count are zero as well.
        scaled[~(np.abs(scaled) < _MULTIPLES_OF_4_FROM)] = 0
    # Half away from zero. Adding 0.5 before the truncation would round 0.49999997 up.
    rounded = np.trunc(scaled)
    scaled -= rounded
    rounded += scaled >= 0.5
    rounded -= scaled <= -0.5
    codes = rounded.astype(np.int32)
    codes += 1
    codes &= 3
    codes -= 1
    return codes, largest


def _largest(blocks: NDArray[np.float32]) -> NDArray[np.float32]:
    """Largest magnitude of each block as ggml's MAX macro finds it, walking forward: after a NaN only what follows it counts."""
    magnitudes = np.abs(blocks)
    largest: NDArray[np.float32] = magnitudes.max(axis=1)
    (rows,) = np.nonzero(np.isnan(largest))
    if rows.size:
        behind_nan = np.isnan(blocks[rows])[:, ::-1].argmax(axis=1)
        kept = np.where(np.arange(_BLOCK) >= _BLOCK - behind_nan[:, None], magnitudes[rows], 0).max(axis=1)
        largest[rows] = np.where(behind_nan == 0, np.float32(np.nan), kept)
    return largest


TQ2_0 = TQ2(
    name="tq2_0",
    block=_BLOCK,
    column_multiple=_BLOCK,
    scale_per="block",
    scale_dtype="float16",
    rule=_absmax,
    summary="ggml: blocks of 256 weights in 66 bytes, float16 scale each",
    source="libggml 0.25.3, quantize_row_tq2_0_ref",
)
