"""Shared parts of the public functions of elementwise ops: values in float32 or a 16-bit dtype, and the optional output
array."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tritmark.harness.contract import check_array, check_output
from tritmark.harness.providers import installed
from tritmark.harness.resident import ResidentArray, first_on_device
from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Tensor
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.numerics.input_dtypes import NARROW

_FLOAT32 = np.dtype(np.float32)


def output(op: Op, tensor: Tensor, out: Any, shape: tuple[int, ...], inputs: Arrays) -> Any:
    """`out`, or a new array of `shape` if it is None, flat. Raises InvalidArgumentError if `out` breaks the
    contract."""
    if out is None:
        like = first_on_device(inputs.values())
        if like is not None:
            return like.new((math.prod(shape),), tensor.dtype)
        return np.empty(shape, tensor.dtype).reshape(-1)
    check_output(
        op.name, replace(tensor, name="out", axes=tuple(str(size) for size in shape)), out, shape, tensor.dtype, inputs
    )
    return out.reshape(-1)


def values(op: Op, key: KernelKey, x: Any, axes: Axes) -> tuple[KernelKey, Any]:
    """The key of the kernel for a flat array of float32, float16 or bfloat16 values, and the array that it takes.

    16-bit values that no kernel reads directly (on a CPU, to packed codes, in blocks of other sizes) are first
    converted to float32, exactly, on their device. Raises InvalidArgumentError for other arrays, and the errors of
    dispatch.run.
    """
    dtype = "float32" if x.dtype == _FLOAT32 else str(x.dtype)  # str(dtype) takes longer than the rest
    if dtype not in NARROW:
        check_array(op.name, op.inputs[0], x)
        return key, x
    check_array(op.name, op.inputs[0], x, dtype)
    if key.format == "none" and dispatch.registry().has_kernel_for(key.device, key.op, dtype, key.dtype, axes):
        return replace(key, format=dtype), x
    if isinstance(x, ResidentArray):
        wide = installed().ops["float_widen"]
        sizes, widen = {"n": x.size}, KernelKey(key.device, wide.name, dtype, "float32")
        made = dispatch.outputs_for(wide, sizes, widen, {}, {"h": x})
        dispatch.run(wide, dispatch.select(widen, sizes, None), {"h": x}, made, sizes, 1)
        return key, made["x"]
    with np.errstate(invalid="ignore"):
        return key, x.astype(np.float32)
