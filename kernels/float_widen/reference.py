"""float_widen in NumPy and ml_dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.float_narrow.reference import NAN_BITS, narrowed


def widened(h: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """float16 or bfloat16 in float32. A NaN keeps its sign and payload and becomes quiet, by whatever instruction."""
    with np.errstate(invalid="ignore"):
        made: npt.NDArray[np.float32] = h.astype(np.float32)
    bits = h.view(np.uint16).astype(np.uint32)
    _, longer, kept = NAN_BITS[str(h.dtype)]
    nan = (bits & 0x8000) << 16 | 0x7FC00000 | (bits & kept) << longer
    return np.where(np.isnan(made), nan.view(np.float32), made)


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The logical input is float32; what is to be widened is that in the key's format."""
    return {"x": widened(narrowed(inputs["h"], key.format))}
