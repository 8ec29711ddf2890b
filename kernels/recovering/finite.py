"""Values that no kernel may give for finite inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Op
from tritmark.kernels.ops import contracts


def excluded_value(op: Op, inputs: Arrays, outputs: Arrays, axes: Axes) -> str:
    """The first NaN or infinity in host arrays of outputs that the contract excludes, in words; "" for none.

    The `spec` of an op may have `largest(inputs, axes)`, a bound of the magnitude of results beyond those of inputs:
    below the largest number of the output's dtype, no result can overflow. An infinity of any other op may be an
    overflow, so it passes. With SUMS_OVERFLOW a NaN passes too: it may be the sum of two infinities.
    """
    spec = next((spec for each, spec in contracts() if each.name == op.name), None)
    if getattr(spec, "SUMS_OVERFLOW", False):
        return ""
    for name, array in outputs.items():
        if not isinstance(array, np.ndarray) or not _floating(array) or np.isfinite(array).all():
            continue
        if not all(_finite(each) for each in inputs.values()):
            return ""
        wrong = np.isnan(array)
        largest = getattr(spec, "largest", None)
        if largest is not None and largest(inputs, axes) < _largest(array):
            wrong = ~np.isfinite(array)
        if wrong.any():
            index = tuple(int(each) for each in np.unravel_index(int(np.argmax(wrong)), array.shape))
            return f"{array[index]} in {name} at {index}, from finite inputs"
    return ""


def _floating(array: Any) -> bool:
    return bool(array.dtype.kind == "f" or array.dtype.name == "bfloat16")


def _finite(value: Any) -> bool:
    array = np.asarray(value)
    return not _floating(array) or bool(np.isfinite(array).all())


def _largest(array: Any) -> float:
    if array.dtype.name == "bfloat16":
        return 3.3895313892515355e38  # (2 - 2**-7) * 2**127
    return float(np.finfo(array.dtype).max)
