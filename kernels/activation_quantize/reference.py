"""activation_quantize in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.float_narrow.reference import narrowed

FORMATS = ("none", "float16", "bfloat16")
"""What x may be in: float32, or a 16-bit dtype."""
LARGEST = {"float16": np.float32(65504), "bfloat16": np.uint32(0x7F7F0000).view(np.float32)}
"""The largest finite number of each."""
LEAST = np.float32(1e-5)
"""The least magnitude that a row is scaled by."""


def narrow(x: npt.NDArray[np.float32], format: str) -> npt.NDArray[Any]:
    """`x` as a kernel of that format takes it, to nearest even. What would become infinity becomes the largest finite
    number, since the contract has no row with infinities; NaN and infinity stay."""
    if format == "none":
        return x
    largest = LARGEST[format]
    return narrowed(np.where(np.isfinite(x), np.clip(x, -largest, largest), x), format)


def given(x: npt.NDArray[np.float32], format: str) -> npt.NDArray[np.float32]:
    """The values of that, in float32."""
    with np.errstate(invalid="ignore"):
        return narrow(x, format).astype(np.float32)


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """scale = 127 / max(absmax, 1e-5), q = clamp(rint(x * scale), -128, 127), and the sum of q, by row.

    float64 has more than twice float32's bits and two to spare, so a quotient or product that is rounded to it and then
    to float32 is the float32 quotient or product.
    """
    x = given(inputs["x"], key.format)
    absmax = np.maximum(np.abs(x).max(axis=1), LEAST)
    scale = (127.0 / absmax.astype(np.float64)).astype(np.float32)
    product = (x.astype(np.float64) * scale.astype(np.float64)[:, np.newaxis]).astype(np.float32)
    q = np.clip(np.rint(product), -128, 127).astype(np.int64)
    return {"q": q.astype(np.int8), "scale": scale, "sum": q.sum(axis=1)}
