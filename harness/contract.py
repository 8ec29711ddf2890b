"""Checks arguments against an Op's contract, before anything is run or written."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import Arrays, Op, Tensor, Values, axis_size

MOST_THREADS = 2**31 - 1
"""Native code stores thread counts in int32."""


def check_threads(op: str, threads: Any) -> None:
    """Raise InvalidArgumentError for anything except None and an integer of 1 or more."""
    whole = isinstance(threads, int | np.integer) and not isinstance(threads, bool)
    if threads is not None and not (whole and 1 <= threads <= MOST_THREADS):
        legal = "an integer of at least 1, or None for one thread per physical core"
        raise InvalidArgumentError(op=op, argument="threads", found=repr(threads), legal=legal)


def check_variant(op: str, variant: Any) -> None:
    """Raise InvalidArgumentError for anything except None and text. The registry checks whether the variant exists."""
    if variant is not None and not (isinstance(variant, str) and variant):
        legal = "the name of a variant from `tritmark list variants`, or None for the best one"
        raise InvalidArgumentError(op=op, argument="variant", found=repr(variant), legal=legal)


def dtype_name(op: str, dtype: Any) -> str:
    """The name of a dtype, given as NumPy takes it or by any name, also one that NumPy lacks. Raises
    InvalidArgumentError otherwise."""
    if isinstance(dtype, str):
        return dtype
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        legal = "a dtype, or its name"
        raise InvalidArgumentError(op=op, argument="dtype", found=repr(dtype), legal=legal) from None


def unify(op: Op, arrays: Arrays, axes: dict[str, int] | None = None) -> dict[str, int]:
    """Check the inputs of `op` and return the sizes of the symbolic axes that they fix, in the order of the op.

    `axes` holds sizes that are already known. The caller checks an input that is not in `arrays`, such as packed
    weights, which do not have the contract's shape. Raises InvalidArgumentError for an invalid type, dtype, number of
    dimensions, size, stride or alignment, for an empty array, and for scalars that the contract does not admit.
    """
    sizes = dict(axes or {})
    for tensor in op.inputs:
        if tensor.name not in arrays:
            continue
        value = arrays[tensor.name]
        if not tensor.axes:
            _scalar(op.name, tensor, value)
            continue
        check_array(op.name, tensor, value)
        for axis, size in zip(tensor.axes, value.shape, strict=True):
            name, _, more = axis.partition("+")
            known = sizes.setdefault(name, size - int(more or 0))
            if axis_size(axis, sizes) != size:
                raise InvalidArgumentError(
                    op=op.name,
                    argument=tensor.name,
                    found=f"of shape {value.shape}",
                    legal=f"{name} = {known}, as in another argument",
                )
    return {axis: sizes[axis] for axis in op.axes if axis in sizes} | sizes


def check_array(op: str, tensor: Tensor, value: Any, dtype: str | None = None) -> None:
    """Check one array against its Tensor; `dtype` replaces that of the tensor if it depends on the kernel."""

    def refuse(found: str, legal: str) -> InvalidArgumentError:
        return InvalidArgumentError(op=op, argument=tensor.name, found=found, legal=legal)

    wanted = dtype or tensor.dtype
    there = isinstance(value, ResidentArray)
    if not there and not isinstance(value, np.ndarray):
        raise refuse(f"a {type(value).__name__}", f"a NumPy array of {wanted}")
    if value.dtype != named_dtype(wanted):
        raise refuse(f"of dtype {value.dtype}", f"{wanted} in native byte order")
    if value.ndim != len(tensor.axes):
        raise refuse(f"of shape {value.shape}", f"{len(tensor.axes)} dimensions ({', '.join(tensor.axes)})")
    if value.size == 0:
        raise refuse(f"empty (shape {value.shape})", "at least one element")
    if there:
        # Values on a device are not checked, because that takes a copy.
        item = value.dtype.itemsize
        apart = tensor.strided_rows and value.strides[0] >= value.shape[-1] * item and value.strides[-1] == item
        if not value.contiguous and not apart:
            legal = "rows contiguous and in order" if tensor.strided_rows else "C-contiguous"
            raise refuse(f"strided {value.strides}", legal)
        return
    row = value[0] if tensor.strided_rows else value
    if not row.flags.c_contiguous or (tensor.strided_rows and value.strides[0] < row.nbytes and value.shape[0] > 1):
        legal = "rows contiguous and in order" if tensor.strided_rows else "C-contiguous"
        raise refuse(f"strided {value.strides}", f"{legal}; next: np.ascontiguousarray makes such a copy")
    if not value.flags.aligned:
        raise refuse(f"at address {value.ctypes.data:#x}", f"aligned to its {value.itemsize}-byte elements")
    if tensor.values is Values.POSITIVE:
        right = np.isfinite(value) & (value > 0)
        if not right.all():
            wrong = np.flatnonzero(~right)
            raise refuse(f"{value.flat[wrong[0]]} at index {wrong[0]}", "finite and above zero")


def check_output(op: str, tensor: Tensor, value: Any, shape: tuple[int, ...], dtype: str, inputs: Arrays) -> None:
    """Check an output array of the caller: its shape and dtype, that it is writable, and that it shares no memory with
    an input."""
    check_array(op, tensor, value, dtype)

    def refuse(found: str, legal: str) -> InvalidArgumentError:
        return InvalidArgumentError(op=op, argument=tensor.name, found=found, legal=legal)

    if value.shape != shape:
        raise refuse(f"of shape {value.shape}", f"shape {shape}")
    if isinstance(value, ResidentArray):
        if not value.writable:
            raise refuse("read-only", "writable")
        if any(isinstance(other, ResidentArray) and _overlap(value, other) for other in inputs.values()):
            raise refuse("in the same memory as an input", "memory of its own")
        return
    if not value.flags.writeable:
        raise refuse("read-only", "writable")
    for name, other in inputs.items():
        if isinstance(other, np.ndarray) and np.may_share_memory(value, other):
            raise refuse(f"in the same memory as {name}", "memory of its own")


def _overlap(one: ResidentArray, other: ResidentArray) -> bool:
    """Whether they may share memory. Gaps between strided rows count as part of an array."""
    (begin, end), (start, stop) = (
        (each.pointer, each.pointer + max(each.nbytes, each.strides[0] * each.shape[0])) for each in (one, other)
    )
    return begin < stop and start < end


def _scalar(op: str, tensor: Tensor, value: Any) -> None:
    def refuse(found: str, legal: str) -> InvalidArgumentError:
        return InvalidArgumentError(op=op, argument=tensor.name, found=found, legal=legal)

    try:
        number = float(value)
    except (TypeError, ValueError):
        raise refuse(f"{value!r}", "a number") from None
    except OverflowError:
        raise refuse(f"{value!r}", f"a number within {tensor.dtype}") from None
    if tensor.dtype == "float32":
        number = ctypes.c_float(number).value
    if tensor.values is Values.POSITIVE and not (math.isfinite(number) and number > 0):
        raise refuse(f"{value!r}", f"finite and above zero as {tensor.dtype}")
    if tensor.values is Values.FINITE and not math.isfinite(number):
        raise refuse(f"{value!r}", f"finite as {tensor.dtype}")
