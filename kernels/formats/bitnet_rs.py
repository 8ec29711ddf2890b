"""The layouts that BitNet-rs calls I2_S: blocks of 32 weights with one scale each, and blocks of 256 without."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tritmark.kernels.formats.base import Scale
from tritmark.kernels.formats.sequential import Sequential

_BLOCK = 32


def _by_thresholds(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
    """The rule of the kernels: per block, scale = absmax / 1.5, or 1 if absmax <= 1e-8. Quotients above 0.5 become 1,
    and those below -0.5 become -1."""
    blocks = x.reshape(-1, _BLOCK)
    largest = np.fmax.reduce(np.abs(blocks), axis=1, initial=0)
    with np.errstate(all="ignore"):
        scales = np.where(largest > np.float32(1e-8), largest / np.float32(1.5), np.float32(1))
        quotients = blocks / scales[:, np.newaxis]
    codes = (quotients > 0.5).astype(np.int8) - (quotients < -0.5)
    return codes.reshape(x.shape), scales.reshape(len(x), -1)


def _by_rounding(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
    """The rule of the quantization crate: per block, scale = absmax, or 1 if that is 0. The quotient is rounded half
    away from zero."""
    blocks = x.reshape(-1, _BLOCK)
    largest = np.fmax.reduce(np.abs(blocks), axis=1, initial=0)
    scales = np.where(largest == 0, np.float32(1), largest)
    with np.errstate(all="ignore"):
        quotients = blocks / scales[:, np.newaxis]
    # No quotient exceeds 1, so the original's clamp to -2..1 has no effect. A NaN becomes 0.
    codes = (quotients >= 0.5).astype(np.int8) - (quotients <= -0.5)
    return codes.reshape(x.shape), scales.reshape(len(x), -1)


BITNET_RS_32 = Sequential(
    name="bitnet_rs_32",
    block=_BLOCK,
    group=_BLOCK,
    column_multiple=_BLOCK,
    fields=(3, 0, 1),
    scale_per="group",
    scale_stored=False,
    rule=_by_thresholds,
    summary="BitNet-rs's kernels: fields 3, 0, 1 for -1, 0, 1; one scale per 32 weights beside the bytes",
    source="BitNet-rs, crates/bitnet-kernels, quantize_i2s",
)

BITNET_RS_32_SIGNED = Sequential(
    name="bitnet_rs_32_signed",
    block=_BLOCK,
    group=_BLOCK,
    column_multiple=_BLOCK,
    codes=(-2, -1, 0, 1),
    fields=(0, 1, 2, 3),
    scale_per="group",
    scale_stored=False,
    rule=_by_rounding,
    summary="BitNet-rs's quantization crate: fields q + 2 for q = -2 to 1; one scale per 32 weights beside the bytes",
    source="BitNet-rs, crates/bitnet-quantization, pack_2bit_values and quantize_value",
)

QK256 = Sequential(
    name="qk256",
    block=256,
    codes=(-2, -1, 1, 2),
    fields=(0, 1, 2, 3),
    scale_per="tensor",
    scale_stored=False,
    summary="BitNet-rs's older I2_S: rows of blocks of 256 weights in 64 bytes, codes -2, -1, 1, 2",
    source="BitNet-rs, crates/bitnet-quantization/src/i2s_qk256.rs",
)

FORMATS = (BITNET_RS_32, BITNET_RS_32_SIGNED, QK256)
