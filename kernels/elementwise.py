"""What the elementwise ops' public functions share: the output array that the caller may give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tritmark.harness.contract import check_output
from tritmark.harness.spec import Arrays, Op, Tensor


def output(op: Op, tensor: Tensor, out: Any, shape: tuple[int, ...], inputs: Arrays) -> np.ndarray[Any, Any]:
    """`out`, or a new array of `shape` where it is None, flat. Raises InvalidArgumentError where `out` breaks the
    contract."""
    if out is None:
        return np.empty(shape, tensor.dtype).reshape(-1)
    check_output(
        op.name, replace(tensor, name="out", axes=tuple(str(size) for size in shape)), out, shape, tensor.dtype, inputs
    )
    flat: np.ndarray[Any, Any] = out.reshape(-1)
    return flat
