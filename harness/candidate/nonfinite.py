"""Finds inputs that an op's contract forbids, for kernels that do not report them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tritmark.harness.spec import Op, Values


def first_nonfinite(op: Op, inputs: Mapping[str, Any]) -> int:
    """Index, in C order, of the first NaN or infinity in an input array that must be finite; -1 if there is none."""
    for tensor in op.inputs:
        if tensor.values is Values.FINITE and tensor.axes:
            given = inputs[tensor.name]
            array = given if isinstance(given, np.ndarray) else given.numpy()
            finite = np.isfinite(array)
            if not finite.all():
                return int(np.argmin(finite))
    return -1
