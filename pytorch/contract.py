"""The contracts of the ops on every device. They are checked at the first call with a shape, before any work."""

from __future__ import annotations

import math
from typing import Any

import torch

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats.base import Format
from tritmark.kernels.hadamard_quantize.spec import BLOCKS
from tritmark.kernels.weights.packed import known_format

FLOATS = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
"""Dtypes of activations, with their NumPy names."""
DTYPES = {**FLOATS, torch.int32: "int32"}
"""Dtypes of the outputs of products."""

HALVES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
"""Dtypes of activations that products take without quantization."""

LEAST, PAST = 2.0**-150, 2.0**128 - 2.0**103
"""A number between these is above zero and finite in float32."""


def refuse(op: str, argument: str, found: str, legal: str) -> InvalidArgumentError:
    """Build the error."""
    return InvalidArgumentError(op=f"torch.ops.tritmark.{op}", argument=argument, found=found, legal=legal)


def refuse_nonfinite(op: str, name: str, value: torch.Tensor) -> InvalidArgumentError | None:
    """The error for the first NaN or infinity of a CPU tensor, in the words of the called function; None without
    one."""
    wrong = torch.nonzero(~torch.isfinite(value))
    if not len(wrong):
        return None
    at = tuple(wrong[0].tolist())
    shown = at[0] if len(at) == 1 else at
    legal = f"finite values; torch.nan_to_num({name}) replaces NaN and infinity"
    return InvalidArgumentError(op=op, argument=name, found=f"{value[at].item()} at index {shown}", legal=legal)


def check_tensor(op: str, name: str, value: torch.Tensor, dtypes: Any, least: int = 0) -> None:
    """Check the dtype of a tensor and its least number of dimensions. Raises InvalidArgumentError."""
    if value.dtype not in dtypes:
        raise refuse(op, name, f"of dtype {value.dtype}", " or ".join(map(str, dtypes)))
    if value.ndim < least:
        raise refuse(op, name, f"of shape {tuple(value.shape)}", f"at least {least} dimensions")


def check_float(op: str, name: str, dtype: torch.dtype) -> None:
    """Check the dtype of a floating output. Raises InvalidArgumentError."""
    if dtype not in FLOATS:
        raise refuse(op, name, str(dtype), " or ".join(map(str, FLOATS)))


def check_rows(op: str, name: str, value: torch.Tensor, dtypes: Any) -> int:
    """Check also that the last axis is not empty, and return its size. Raises InvalidArgumentError."""
    check_tensor(op, name, value, dtypes, least=1)
    if not value.shape[-1]:
        raise refuse(op, name, f"of shape {tuple(value.shape)}", "a last dimension above 0")
    return int(value.shape[-1])


def check_hadamard(op: str, x: torch.Tensor, signs: torch.Tensor | None, block_size: int) -> tuple[int, int]:
    """Check the arguments of a rotation except values, and return (M, K). Raises InvalidArgumentError."""
    K = check_rows(op, "x", x, FLOATS)
    if block_size not in BLOCKS or K % block_size:
        legal = f"{', '.join(map(str, BLOCKS[:-1]))} or {BLOCKS[-1]}, a divisor of the columns"
        raise refuse(op, "block_size", f"{block_size} for {K} columns", legal)
    if signs is not None:
        check_tensor(op, "signs", signs, (torch.int8,))
        if tuple(signs.shape) != (K,):
            raise refuse(op, "signs", f"of shape {tuple(signs.shape)}", f"of shape ({K},)")
        check_device(op, "signs", signs, x)
    return x.numel() // K, K


def check_scale(op: str, name: str, scale: float) -> None:
    """Check that a scale is finite and above zero in float32. Raises InvalidArgumentError."""
    if not LEAST < scale < PAST:
        raise refuse(op, name, repr(scale), "finite and above zero as float32")


def check_weights(op: str, weights: torch.Tensor, N: int, K: int, format: str, like: torch.Tensor) -> Format:
    """Check the bytes of weights (N, K) in a format, on the device of `like`. Raises InvalidArgumentError."""
    form = known_format(op, format)
    check_tensor(op, "weights", weights, (torch.uint8,))
    form.check_shape(op, "N", (N, K))
    nbytes = math.prod(form.packed_shape((N, K)))
    if weights.numel() != nbytes:
        raise refuse(op, "weights", f"{weights.numel()} bytes", f"{nbytes} bytes, for {N} x {K} in {format}")
    if not weights.is_contiguous():
        raise refuse(op, "weights", f"strided {weights.stride()}", "contiguous")
    check_device(op, "weights", weights, like)
    return form


def check_device(op: str, name: str, value: torch.Tensor, like: torch.Tensor) -> None:
    """Check that a tensor is on the device of `like`. Raises InvalidArgumentError."""
    if value.device != like.device:
        raise refuse(op, name, f"on {value.device}", f"on {like.device}, like the other tensors")


def check_product(
    op: str, rows: torch.Tensor, weights: torch.Tensor, weight_scale: float, N: int, format: str
) -> tuple[int, int]:
    """Check weights and scale of a product, and return (M, K). The caller checks the dtype of `rows`. Raises
    InvalidArgumentError."""
    K = int(rows.shape[-1])
    form = check_weights(op, weights, N, K, format, rows)
    check_weight_scale(op, weight_scale, form)
    return rows.numel() // K, K


def check_weight_scale(op: str, weight_scale: float, form: Format) -> None:
    """Check a scale for weights in that format. Raises InvalidArgumentError."""
    if form.scale_per != "tensor" and weight_scale != 1:
        raise refuse(op, "weight_scale", repr(weight_scale), f"1, because {form.name} stores {form.scales}")
    check_scale(op, "weight_scale", weight_scale)


def check_bias(op: str, bias: torch.Tensor | None, N: int, like: torch.Tensor) -> None:
    """Check for None, or a floating tensor (N,) on the device of `like`. Raises InvalidArgumentError."""
    if bias is None:
        return
    check_tensor(op, "bias", bias, FLOATS)
    if tuple(bias.shape) != (N,):
        raise refuse(op, "bias", f"of shape {tuple(bias.shape)}", f"of shape ({N},)")
    check_device(op, "bias", bias, like)


def check_matmul(
    activations: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: float,
    act_scale: torch.Tensor,
    N: int,
    format: str,
    out_dtype: torch.dtype,
) -> tuple[int, int]:
    """Check the arguments of ternary_matmul, and return (M, K). Raises InvalidArgumentError."""
    op = "ternary_matmul"
    check_rows(op, "activations", activations, (torch.int8,))
    shape = check_product(op, activations, weights, weight_scale, N, format)
    check_tensor(op, "act_scale", act_scale, (torch.float32,))
    if act_scale.shape != activations.shape[:-1]:
        legal = f"of shape {tuple(activations.shape[:-1])}, one for each row of activations"
        raise refuse(op, "act_scale", f"of shape {tuple(act_scale.shape)}", legal)
    check_device(op, "act_scale", act_scale, activations)
    if out_dtype not in DTYPES:
        raise refuse(op, "out_dtype", str(out_dtype), " or ".join(map(str, DTYPES)))
    return shape


def check_experts(
    activations: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: torch.Tensor,
    act_scale: torch.Tensor,
    offsets: torch.Tensor,
    N: int,
    format: str,
    out_dtype: torch.dtype,
) -> dict[str, int]:
    """Check the arguments of ternary_matmul_experts, except values, and return the axes. Raises
    InvalidArgumentError."""
    op = "ternary_matmul_experts"
    check_tensor(op, "activations", activations, (torch.int8,), least=2)
    form = known_format(op, format)
    if activations.ndim != 2 or not activations.shape[1]:
        raise refuse(op, "activations", f"of shape {tuple(activations.shape)}", "(M, K)")
    M, K = map(int, activations.shape)
    check_tensor(op, "weight_scale", weight_scale, (torch.float32,), least=1)
    E = int(weight_scale.shape[0])
    check_tensor(op, "weights", weights, (torch.uint8,))
    form.check_shape(op, "N", (N, K))
    nbytes = E * math.prod(form.packed_shape((N, K)))
    if weights.numel() != nbytes or not E:
        legal = f"{nbytes} bytes, for {E} experts of {N} x {K} in {format}"
        raise refuse(op, "weights", f"{weights.numel()} bytes", legal)
    if not weights.is_contiguous():
        raise refuse(op, "weights", f"strided {weights.stride()}", "contiguous")
    check_tensor(op, "act_scale", act_scale, (torch.float32,))
    check_tensor(op, "offsets", offsets, (torch.int32,))
    shapes = ("weight_scale", weight_scale, (E,)), ("act_scale", act_scale, (M,)), ("offsets", offsets, (E + 1,))
    for name, tensor, shape in shapes:
        if tuple(tensor.shape) != shape:
            raise refuse(op, name, f"of shape {tuple(tensor.shape)}", f"of shape {shape}")
        check_device(op, name, tensor, activations)
    check_device(op, "weights", weights, activations)
    if out_dtype not in DTYPES:
        raise refuse(op, "out_dtype", str(out_dtype), " or ".join(map(str, DTYPES)))
    return {"M": M, "E": E, "N": N, "K": K}


def check_a16(
    activations: torch.Tensor, weights: torch.Tensor, weight_scale: float, N: int, format: str, out_dtype: torch.dtype
) -> tuple[int, int]:
    """Check the arguments of ternary_matmul_a16, and return (M, K). Raises InvalidArgumentError."""
    op = "ternary_matmul_a16"
    check_rows(op, "activations", activations, HALVES)
    form = known_format(op, format)
    if form.scale_per == "row" or (form.scale_per == "group" and not form.scale_stored):
        legal = "a format with one scale, or with those of groups in its bytes"
        raise refuse(op, "format", f"{format}, which has {form.scales}", legal)
    if out_dtype not in FLOATS:
        raise refuse(op, "out_dtype", str(out_dtype), " or ".join(map(str, FLOATS)))
    return check_product(op, activations, weights, weight_scale, N, format)


def check_linear(
    x: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: float,
    N: int,
    format: str,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype,
) -> tuple[int, int, torch.dtype]:
    """Check the arguments of linear. Returns (M, K), and the dtype of the product: the output's, or float32 if a bias
    is added. Raises InvalidArgumentError."""
    op = "linear"
    check_rows(op, "x", x, FLOATS)
    M, K = check_product(op, x, weights, weight_scale, N, format)
    check_bias(op, bias, N, x)
    if out_dtype not in FLOATS:
        raise refuse(op, "out_dtype", str(out_dtype), " or ".join(map(str, FLOATS)))
    return M, K, out_dtype if bias is None else torch.float32


def check_elements(op: str, name: str, value: torch.Tensor, dtypes: Any, scale: float) -> None:
    """Check a tensor of any shape, and a scale. Raises InvalidArgumentError."""
    check_tensor(op, name, value, dtypes)
    check_scale(op, "scale", scale)


def check_codes(codes: torch.Tensor, scale: float, format: str) -> Format:
    """Check codes (N, K) for a format with one scale. Raises InvalidArgumentError."""
    op = "pack"
    form = known_format(op, format)
    if form.scale_per != "tensor":
        raise refuse(op, "format", f"{format}, which has {form.scales}", "a format with one scale")
    check_tensor(op, "codes", codes, (torch.int8,))
    form.check_tail(op, form.check_shape(op, "codes", tuple(codes.shape)), "error")
    check_scale(op, "scale", scale)
    return form
