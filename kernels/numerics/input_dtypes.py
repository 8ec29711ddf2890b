"""Ops of float32 values that also take float16 or bfloat16. The format of a key names the input dtype; "none" is
float32. The output is bit for bit that of the same values in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import INPUT_DTYPES, Arrays, Axes, KernelKey
from tritmark.kernels.numerics.narrowing import narrowed

NARROW = INPUT_DTYPES
FORMATS = ("none", *NARROW)
INPUT = {"none": "32", "float16": "16", "bfloat16": "8"}
"""The macro of that name in cuda/element.cuh."""
LARGEST = {"float16": np.float32(65504), "bfloat16": np.uint32(0x7F7F0000).view(np.float32)}
"""The largest finite number of each."""


def itemsize(format: str) -> int:
    """Bytes of an element."""
    return 2 if format in NARROW else 4


def narrow(x: npt.NDArray[np.float32], format: str) -> npt.NDArray[Any]:
    """`x` as a kernel of that format takes it, rounded to nearest even. A finite value that would become infinity
    becomes the largest finite number, since the contracts admit no infinities; NaN and infinity stay."""
    if format not in NARROW:
        return x
    largest = LARGEST[format]
    return narrowed(np.where(np.isfinite(x), np.clip(x, -largest, largest), x), format)


def given(x: npt.NDArray[np.float32], format: str) -> npt.NDArray[np.float32]:
    """The values of `narrow(x, format)`, in float32."""
    with np.errstate(invalid="ignore"):
        return narrow(x, format).astype(np.float32)


def other_type(x: npt.NDArray[np.float32], format: str) -> npt.NDArray[np.float32]:
    """The values that a kernel reads if it takes float16 for bfloat16, or the reverse; NaN and infinity as 0. For
    mutants."""
    other = named_dtype("bfloat16" if format == "float16" else "float16")
    with np.errstate(invalid="ignore"):
        wrong = narrow(x, format).view(np.uint16).view(other).astype(np.float32)
    return np.where(np.isfinite(wrong), wrong, np.float32(0))


def encode(inputs: Arrays, axes: Axes, format: str) -> dict[str, Any]:
    """`Op.encode` of an op with values `x`."""
    return {**inputs, "x": narrow(inputs["x"], format)}


def decode(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The inverse of `encode`, for harness.spec.Decoding."""
    with np.errstate(invalid="ignore"):
        return {**inputs, "x": np.asarray(inputs["x"]).astype(np.float32)}
