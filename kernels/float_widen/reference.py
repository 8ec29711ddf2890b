"""float_widen in NumPy and ml_dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.numerics.narrowing import NAN_BITS, narrowed


def widened(h: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """float16 or bfloat16 in float32. A NaN keeps its sign and payload and becomes quiet."""
    with np.errstate(invalid="ignore"):
        made: npt.NDArray[np.float32] = h.astype(np.float32)
    bits = h.view(np.uint16).astype(np.uint32)
    _, longer, kept = NAN_BITS[str(h.dtype)]
    nan = (bits & 0x8000) << 16 | 0x7FC00000 | (bits & kept) << longer
    return np.where(np.isnan(made), nan.view(np.float32), made)


def held(x: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    """`x` narrowed, except that a signalling NaN stays one: the input of float_widen may contain it."""
    made = narrowed(x, dtype)
    quiet, _, kept = NAN_BITS[dtype]
    of_quiet = quiet & ~(0x7C00 if dtype == "float16" else 0x7F80)
    signalling = np.isnan(x) & (x.view(np.uint32) >> 22 & 1 == 0)
    words = made.view(np.uint16)[signalling] & np.uint16(0xFFFF ^ of_quiet)
    # With an empty payload it would be an infinity.
    made.view(np.uint16)[signalling] = np.where(words & kept, words, words | 1)
    return made


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The logical input is float32; kernels get it in the key's format."""
    return {"x": widened(held(inputs["h"], key.input_dtype))}
