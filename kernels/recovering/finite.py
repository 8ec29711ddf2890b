"""Values that no kernel may give for finite inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Op

_CODE = 2
"""The largest magnitude of a code."""


def _absent(inputs: Arrays, axes: Axes) -> float:
    return 0.0


def _dequantized(inputs: Arrays, axes: Axes) -> float:
    return _CODE * float(inputs["scale"])


def _product(inputs: Arrays, axes: Axes) -> float:
    if not np.all(np.asarray(inputs["weight_scale"]) != 1):
        return np.inf  # rows or groups may have scales, in the bytes of the weights
    return axes["K"] * _CODE * 128 * float(np.max(inputs["weight_scale"])) / float(np.min(inputs["act_scale"]))


_LARGEST: Mapping[str, Callable[[Arrays, Axes], float]] = {
    "absmean_quantize": _absent,
    "activation_quantize": _absent,
    "i2s_dequantize": _dequantized,
    "ternary_quantize": _absent,
    "ternary_matmul": _product,
}
"""By op, a bound of the magnitude of results beyond those of inputs: below the largest number of the output's dtype, no
result can overflow. An infinity of any other op may be an overflow, so it passes."""

_PROPAGATES = ("float_widen", "float_narrow", "matmul", "ternary_matmul_a16")
"""Ops, by the beginning of their names, whose results may be NaN for finite inputs, or whose inputs need not be
finite."""


def excluded_value(op: Op, inputs: Arrays, outputs: Arrays, axes: Axes) -> str:
    """The first NaN or infinity in host arrays of outputs that the contract excludes, in words; "" for none."""
    if op.name.startswith(_PROPAGATES):
        return ""
    for name, array in outputs.items():
        if not isinstance(array, np.ndarray) or not _floating(array) or np.isfinite(array).all():
            continue
        if not all(_finite(each) for each in inputs.values()):
            return ""
        wrong = np.isnan(array)
        found = _LARGEST.get(op.name)
        if found is not None and found(inputs, axes) < _largest(array):
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
