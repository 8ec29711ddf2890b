"""The rule of libggml's ternary formats, in NumPy: the largest magnitude `it` of each block, and
lroundf(x * (1 / it))."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tritmark.kernels.formats.base import Scale
from tritmark.kernels.formats.bits import slabs

_MULTIPLES_OF_256_FROM = np.float32(2.0**31)
"""From this value up every float32 is a multiple of 256, so the low bits that a format keeps are zero."""


def absmax(x: NDArray[np.float32], block: int) -> tuple[NDArray[np.int8], Scale]:
    """Codes (N, K) and scales (N, K/block) of float32 weights (N, K); `codes` has the low 8 bits of lroundf's result.

    Codes are -1, 0 or 1, except where a NaN made libggml drop the magnitudes before it.
    """
    n, k = x.shape
    blocks = x.reshape(-1, block)
    codes = np.empty(blocks.shape, np.int8)
    scales = np.empty(len(blocks), np.float32)
    for part in slabs(len(blocks), block * x.itemsize):
        codes[part], scales[part] = _blocks(blocks[part])
    return codes.reshape(n, k), scales.reshape(n, -1)


def _blocks(blocks: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    largest = _largest(blocks)
    with np.errstate(all="ignore"):
        inverse = np.where(largest == 0, np.float32(0), np.float32(1) / largest)
        scaled = blocks * inverse[:, None]
        # lroundf returns LONG_MIN for values beyond int64; the bits that matter are zero as well.
        scaled[~(np.abs(scaled) < _MULTIPLES_OF_256_FROM)] = 0
    # Half away from zero. Adding 0.5 before the truncation would round 0.49999997 up.
    rounded = np.trunc(scaled)
    scaled -= rounded
    rounded += scaled >= 0.5
    rounded -= scaled <= -0.5
    return rounded.astype(np.int32).astype(np.int8), largest


def _largest(blocks: NDArray[np.float32]) -> NDArray[np.float32]:
    """Largest magnitude of each block as ggml's MAX macro finds it in a forward scan: after a NaN only later values
    count."""
    magnitudes = np.abs(blocks)
    largest: NDArray[np.float32] = magnitudes.max(axis=1)
    (rows,) = np.nonzero(np.isnan(largest))
    if rows.size:
        block = blocks.shape[1]
        behind_nan = np.isnan(blocks[rows])[:, ::-1].argmax(axis=1)
        kept = np.where(np.arange(block) >= block - behind_nan[:, None], magnitudes[rows], 0).max(axis=1)
        largest[rows] = np.where(behind_nan == 0, np.float32(np.nan), kept)
    return largest
