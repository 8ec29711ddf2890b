"""float32 to 16-bit dtypes, as the hardware rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype

NAN_BITS = {"float16": (0x7E00, 13, 0x01FF), "bfloat16": (0x7FC0, 16, 0x003F)}
"""For each dtype: its quiet NaN, the number of payload bits that float32 has in addition, and the mask of the kept
bits."""


def narrowed(x: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    """`x` in float16 or bfloat16, to nearest even, as NumPy and ml_dtypes round. They differ for a NaN, so it is
    handled here."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        made = x.astype(named_dtype(dtype))
    bits = x.view(np.uint32)
    quiet, longer, kept = NAN_BITS[dtype]
    nan = (bits >> 16 & 0x8000) | quiet | (bits >> longer & kept)
    nans = np.isnan(x)
    made.view(np.uint16)[nans] = nan[nans].astype(np.uint16)
    return made
