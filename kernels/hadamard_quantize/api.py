"""The public function hadamard_quantize."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, cast, overload

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import check_array, dtype_name
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.nearest import misspelt
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import Op, Tensor
from tritmark.kernels.activation_quantize.api import ActivationQuantized
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.hadamard_quantize.spec import BLOCKS, DTYPES, OPS, QUANTIZE, key_for
from tritmark.kernels.public import elementwise
from tritmark.kernels.public.foreign import takes_any_array

__all__ = ["hadamard_quantize"]

_NAME = QUANTIZE.op
_SHOWN = {kind: replace(op, name=_NAME) for kind, op in OPS.items()}
"""The ops, for errors with the name of the public function."""
_LEGAL = (QUANTIZE.dtype, *DTYPES)


@overload
def hadamard_quantize(
    x: npt.NDArray[Any],
    signs: npt.NDArray[Any] | None = ...,
    *,
    block_size: int,
    dtype: Literal["int8"] = ...,
    inverse: Literal[False] = ...,
    out: ActivationQuantized | None = ...,
    nonfinite: str = ...,
    variant: str | None = ...,
    threads: int | None = ...,
    device: str = ...,
    on_error: str = ...,
) -> ActivationQuantized: ...


@overload
def hadamard_quantize(
    x: npt.NDArray[Any],
    signs: npt.NDArray[Any] | None = ...,
    *,
    block_size: int,
    dtype: Literal["float32", "float16", "bfloat16"],
    inverse: bool = ...,
    out: npt.NDArray[Any] | None = ...,
    nonfinite: str = ...,
    variant: str | None = ...,
    threads: int | None = ...,
    device: str = ...,
    on_error: str = ...,
) -> npt.NDArray[Any]: ...


@takes_any_array
def hadamard_quantize(
    x: npt.NDArray[Any],
    signs: npt.NDArray[Any] | None = None,
    *,
    block_size: int,
    dtype: str = "int8",
    inverse: bool = False,
    out: Any = None,
    nonfinite: str = "error",
    variant: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    on_error: str = "raise",
) -> Any:
    """Activations of a model whose weights are stored as W * S * H: y = (x * signs) H / sqrt(block_size), as int8 codes
    by row or as floats.

    `x` is float32, float16 or bfloat16 (ml_dtypes), (..., K), K at most 16,777,215; rows are contiguous, with one
    stride between them. `signs` is int8 or float32 (K,) of -1 and 1, or None for none. `block_size` is 64, 128, 256,
    512 or 1024 and divides K; H is the Walsh-Hadamard matrix of that size in natural (Sylvester) order.

    With `dtype="int8"` the result is that of activation_quantize(y): q, scale and sum. With "float32", "float16" or
    "bfloat16" it is y, rounded to that dtype. `inverse=True`, for floats only, gives (x H / sqrt(block_size)) * signs,
    the row of a rotated embedding. Sums are float32, in the order h = 1, 2, 4, ... on every device; they are exact for
    values like multiples of 1/16 of moderate size.

    `out`, if given, is an earlier result of the same kind and shape; its arrays are overwritten. `device` is "cpu",
    "cuda" or a package's; `variant` forces one of its kernels. Source: prism.hadamard.* of PrismML-Eng/llama.cpp.

    Raises InvalidArgumentError for arguments outside the contract, for a NaN or infinity in x (with the index in the
    flat array; `nonfinite="zero"` replaces them by 0) and for codes of a block whose sums overflow float32;
    NoCompatibleKernelError for a missing device or variant and for a larger K; DeviceError if a GPU fails. Values of
    arrays on a GPU are not checked: a row with a NaN or infinity has the scale NaN. `on_error="recover"`: see
    docs/guides/recover.md.
    """
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        asked: dict[str, Any] = {"x": x, "signs": signs, "block_size": block_size, "dtype": dtype, "inverse": inverse}
        asked |= {"nonfinite": nonfinite, "variant": variant, "threads": threads, "device": device}
        return call(_NAME, on_error, out=out, **asked)
    name = dtype_name(_NAME, dtype)
    if name not in _LEGAL:
        raise InvalidArgumentError(op=_NAME, argument="dtype", found=misspelt(name, _LEGAL), legal=", ".join(_LEGAL))
    if inverse and name == QUANTIZE.dtype:
        legal = 'inverse=False, or dtype="float32", "float16" or "bfloat16"'
        raise InvalidArgumentError(op=_NAME, argument="inverse", found="True for int8", legal=legal)
    rows = _rows(x)
    key = key_for(str(rows.dtype) if isinstance(rows, np.ndarray | ResidentArray) else "", name, device)
    floats = name != QUANTIZE.dtype
    op, shown = (ops["float" if floats else "int8"] for ops in (OPS, _SHOWN))
    check_array(_NAME, op.inputs[0], rows, None if key.input_dtype == "none" else key.input_dtype)
    M, K = rows.shape
    axes = {"M": M, "K": K, "block": _block(block_size, K)}
    taken = _signs(op.inputs[1], signs, K)
    if inverse and isinstance(rows, ResidentArray):
        legal = "an array in the host's memory, or torch.ops.tritmark.hadamard_transform"
        raise InvalidArgumentError(op=_NAME, argument="inverse", found="True for an array on a device", legal=legal)
    shapes = (x.shape, x.shape[:-1], x.shape[:-1])
    arrays = [
        elementwise.output(shown, tensor, array, shape, {"x": x})
        for tensor, array, shape in zip(_outputs(op, name), _given(out, name), shapes, strict=False)
    ]
    checked = dispatch.finite(shown, "x", rows, nonfinite, preflight=floats or out is not None)
    inputs = {"x": checked, "signs": all_ones(K) if inverse else taken}
    chosen = dispatch.select(key, axes, variant, threads, arrays=(*inputs.values(), *arrays))
    outputs = dict(zip((tensor.name for tensor in op.outputs), arrays, strict=True))
    outputs[op.outputs[0].name] = arrays[0].reshape(rows.shape)
    dispatch.run(op, chosen, inputs, outputs, axes, dispatch.threads_for(key, threads), flat=True)
    if floats:
        y = outputs["y"].reshape(x.shape)
        if inverse:
            np.multiply(y, taken.astype(y.dtype), out=y)
        return y
    if isinstance(outputs["scale"], np.ndarray):
        refuse_rows(checked, outputs["scale"])
    return ActivationQuantized(*(array.reshape(shape) for array, shape in zip(outputs.values(), shapes, strict=True)))


def _rows(x: Any) -> Any:
    """`x` as (M, K), never a copy. Other objects are returned as they are, and the contract refuses them."""
    if not isinstance(x, np.ndarray | ResidentArray) or x.ndim == 0:
        return x
    if isinstance(x, ResidentArray):
        return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    try:
        return x.reshape(math.prod(x.shape[:-1]), x.shape[-1], copy=False)
    except ValueError:
        legal = "rows with one stride between them; np.ascontiguousarray makes such a copy"
        raise InvalidArgumentError(op=_NAME, argument="x", found=f"strided {x.strides}", legal=legal) from None


def _block(block_size: Any, K: int) -> int:
    legal = f"{', '.join(map(str, BLOCKS[:-1]))} or {BLOCKS[-1]}"
    if isinstance(block_size, bool) or block_size not in BLOCKS:
        raise InvalidArgumentError(op=_NAME, argument="block_size", found=repr(block_size), legal=legal)
    if K % block_size:
        found, legal = f"{block_size} for {K} columns", f"a divisor of the columns among {legal}"
        raise InvalidArgumentError(op=_NAME, argument="block_size", found=found, legal=legal)
    return int(block_size)


@lru_cache(maxsize=64)
def all_ones(K: int) -> npt.NDArray[np.int8]:
    """Signs (K,) that change nothing, which may not be written."""
    made = np.ones(K, np.int8)
    made.setflags(write=False)
    return made


def _signs(tensor: Tensor, signs: Any, K: int) -> Any:
    """The signs as int8; values in a device's memory are not checked."""
    if signs is None:
        return all_ones(K)
    if isinstance(signs, np.ndarray) and signs.dtype == np.float32:
        if not (np.abs(signs) == 1).all():
            raise _wrong_sign(signs)
        signs = signs.astype(np.int8)
    check_array(_NAME, tensor, signs)
    if signs.shape != (K,):
        found = f"of shape {signs.shape}"
        raise InvalidArgumentError(op=_NAME, argument="signs", found=found, legal=f"shape {(K,)}, one for each column")
    # -1 and 1 are the bytes 255 and 1; one more each, and only bit 1 may be set.
    if isinstance(signs, np.ndarray) and ((signs.view(np.uint8) + np.uint8(1)) & np.uint8(0xFD)).any():
        raise _wrong_sign(signs)
    return signs


def _wrong_sign(signs: npt.NDArray[Any]) -> InvalidArgumentError:
    at = int(np.flatnonzero((signs != 1) & (signs != -1))[0])
    return InvalidArgumentError(
        op=_NAME, argument="signs", found=f"{signs.reshape(-1)[at]} at index {at}", legal="-1 and 1"
    )


def _outputs(op: Op, dtype: str) -> tuple[Tensor, ...]:
    """The outputs with that dtype in place of the key's."""
    return op.outputs if dtype == QUANTIZE.dtype else (_floats(dtype),)


@lru_cache(maxsize=8)
def _floats(dtype: str) -> Tensor:
    (tensor,) = OPS["float"].outputs
    return Tensor(tensor.name, tensor.axes, dtype, tensor.summary)


def _given(out: Any, dtype: str) -> tuple[Any, ...]:
    """The arrays of `out` to fill."""
    if dtype != QUANTIZE.dtype:
        return (out,)
    if out is None:
        return None, None, None
    if not isinstance(out, ActivationQuantized):
        legal = "ActivationQuantized, as this returns it"
        raise InvalidArgumentError(op=_NAME, argument="out", found=f"a {type(out).__name__}", legal=legal)
    return cast("tuple[Any, ...]", out)


def refuse_rows(x: Any, scale: npt.NDArray[np.float32]) -> None:
    """Raise InvalidArgumentError if the kernel found a row of x (M, K) without finite codes, which then has the scale
    NaN. Names the first NaN or infinity of a NumPy array; of an array on a device, the row."""
    unscaled = np.flatnonzero(np.isnan(scale))
    if not unscaled.size:
        return
    row = int(unscaled[0])
    found, legal = f"with sums above float32 in row {row}", "values below 2**117, whose sums float32 holds"
    if not isinstance(x, np.ndarray):
        found, legal = f"with a NaN, an infinity or sums above float32 in row {row}", f"finite {legal}"
    elif (wrong := np.flatnonzero(~np.isfinite(x))).size:
        found, legal = f"{x.flat[wrong[0]]} at index {int(wrong[0])}", 'finite values (or nonfinite="zero")'
    raise InvalidArgumentError(op=_NAME, argument="x", found=found, legal=legal)
