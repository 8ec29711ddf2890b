"""The ops on CPU tensors: native kernels that work in the memory of the tensors.

A known layer shape finds a plan (kernels/linear/plans.py), which runs with the tensors' addresses. Most of the
remaining host time is attribute access on tensors and PyTorch's allocator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tritmark.harness.dtypes import strides_of
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.monitor import hook, receipts
from tritmark.harness.spec import Axes, KernelKey, Op, Receipt
from tritmark.kernels import FORMATS
from tritmark.kernels.activation_quantize.spec import OP as ACTIVATION_QUANTIZE
from tritmark.kernels.activation_quantize.spec import key_for
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.array_library import TorchTensors
from tritmark.kernels.hadamard_quantize.spec import OPS as HADAMARD
from tritmark.kernels.hadamard_quantize.spec import key_for as hadamard_key
from tritmark.kernels.i2s_dequantize.spec import OP as I2S_DEQUANTIZE
from tritmark.kernels.i2s_quantize.spec import OP as I2S_QUANTIZE
from tritmark.kernels.linear import plans
from tritmark.kernels.native.huge_pages import HUGE_PAGES
from tritmark.kernels.ternary_matmul.spec import OP as TERNARY_MATMUL
from tritmark.kernels.ternary_matmul_experts.spec import OP as TERNARY_MATMUL_EXPERTS
from tritmark.torch import contract
from tritmark.torch.allocator import allocator
from tritmark.torch.watched import watched

numpy = TorchTensors().host
"""The memory of a CPU tensor as a NumPy array, including bfloat16."""
_PLANS = plans.address_plans()
_OPS = "torch.ops.tritmark."
BIT_LINEAR = "BitLinear"
"""The name in errors of calls with the mark of a layer's weights."""


_empty = allocator("cpu")


@watched
def activation_quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See ops."""
    K = contract.check_rows("activation_quantize", "x", x, contract.FLOATS)
    q, scale = x.new_empty(x.shape, dtype=torch.int8), x.new_empty(x.shape[:-1], dtype=torch.float32)
    if x.numel():
        _quantize(x, x.contiguous().view(-1, K), q.view(-1, K), scale.view(-1), f"{_OPS}activation_quantize")
    return q, scale


def _quantize(x: torch.Tensor, rows: torch.Tensor, q: torch.Tensor, scale: torch.Tensor, called: str) -> None:
    """Quantize the rows of `x`; `called` is the function that an error names."""
    M, K = rows.shape
    outputs = {"q": numpy(q), "scale": numpy(scale), "sum": np.empty(M, np.int32)}
    key = key_for(contract.FLOATS[rows.dtype], "cpu")
    try:
        _run(ACTIVATION_QUANTIZE, key, {"x": numpy(rows)}, outputs, {"M": M, "K": K})
    except InvalidArgumentError as error:  # it names the kernel's op and options
        raise contract.refuse_nonfinite(called, "x", x) or error from None


@watched
def ternary_matmul(
    activations: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: float,
    act_scale: torch.Tensor,
    N: int,
    format: str,
    out_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """See ops."""
    M, K = contract.check_matmul(activations, weights, weight_scale, act_scale, N, format, out_dtype)
    out = activations.new_empty((*activations.shape[:-1], N), dtype=computed(out_dtype))
    if M:
        scale = act_scale.contiguous().view(-1)
        wrong = torch.nonzero(~(torch.isfinite(scale) & (scale > 0)))
        if len(wrong):
            at = int(wrong[0, 0])
            found = f"{float(scale[at])} at index {at}"
            raise contract.refuse("ternary_matmul", "act_scale", found, "finite and above zero")
        _multiply(activations.contiguous().view(M, K), weights, weight_scale, scale, out.view(M, N), format)
    return out.to(out_dtype)


@watched
def ternary_matmul_experts(
    activations: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: torch.Tensor,
    act_scale: torch.Tensor,
    offsets: torch.Tensor,
    N: int,
    format: str,
    out_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """See ops."""
    op = TERNARY_MATMUL_EXPERTS
    given = weight_scale, act_scale, offsets
    axes = contract.check_experts(activations, weights, *given, N, format, out_dtype)
    out = activations.new_empty((axes["M"], N), dtype=computed(out_dtype))
    scales = {"weight_scale": numpy(weight_scale.contiguous()), "act_scale": numpy(act_scale.contiguous())}
    for name, scale in scales.items():
        wrong = np.flatnonzero(~(np.isfinite(scale) & (scale > 0)))
        if wrong.size:
            found = f"{scale[wrong[0]]} at index {wrong[0]}"
            raise contract.refuse(op.name, name, found, "finite and above zero")
    if axes["M"]:
        inputs = {
            "activations": numpy(activations.contiguous()),
            "weights": numpy(weights),
            **scales,
            "offsets": numpy(offsets.contiguous()),
        }
        key = KernelKey("cpu", op.name, format, contract.DTYPES[out.dtype])
        _run(op, key, inputs, {"out": numpy(out)}, axes)
    return out.to(out_dtype)


def computed(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which kernels compute an output: float16 is narrowed from float32, as on the GPU."""
    return torch.float32 if dtype is torch.float16 else dtype


def _multiply(
    q: torch.Tensor, weights: torch.Tensor, weight_scale: float, scale: torch.Tensor, out: torch.Tensor, format: str
) -> None:
    (M, K), N = q.shape, out.shape[1]
    inputs = {
        "activations": numpy(q),
        "weights": numpy(weights),
        "weight_scale": np.float32(weight_scale),
        "act_scale": numpy(scale),
    }
    key = KernelKey("cpu", TERNARY_MATMUL.name, format, contract.DTYPES[out.dtype])
    _run(TERNARY_MATMUL, key, inputs, {"out": numpy(out)}, {"M": M, "N": N, "K": K})


def weights_mark(weights: torch.Tensor) -> tuple[Any, ...]:
    """Facts about packed weights that linear checks; the last one is their address. Keep it for constant weights."""
    return weights.shape, weights.dtype, weights.is_cpu and weights.is_contiguous(), weights.data_ptr()


def linear(
    x: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: float,
    N: int,
    format: str,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    of_weights: tuple[Any, ...] | None = None,
) -> torch.Tensor:
    """See ops; `of_weights` is the `weights_mark` of a layer's weights."""
    watch = hook.active
    if watch is not None and (thread := watch.begin()) is not None:
        given = x, weights, weight_scale, N, format, bias, out_dtype, of_weights
        seen: torch.Tensor = watch.call(thread, "torch.linear", linear, given, None)
        return seen
    shape_of, dtype_of, whole, place = of_weights or weights_mark(weights)
    # All that is checked in a call except values, and all that the choice of kernels depends on.
    key = (
        x.shape,
        x.dtype,
        shape_of,
        dtype_of,
        whole,
        N,
        format,
        None if bias is None else (bias.shape, bias.dtype, bias.is_cpu),
        out_dtype,
        torch.get_num_threads(),
    )
    wanted = out_dtype or x.dtype
    found = None if watch is not None and receipts.collects() else _PLANS.get(dispatch.registry(), key)
    if found is not None:
        run_at, ran, shape, strides, made, one_scale = found
        if watch is not None:
            watch.ran(ran)
        # Scales of groups are in the bytes: the contract refuses another number beside them.
        as_planned = one_scale or weight_scale == 1
        out = _planned(run_at, shape, strides, made, x, place, weight_scale) if as_planned else None
        if out is not None:
            if bias is not None:
                out += bias
            return out if made is wanted else out.to(wanted)
    M, K, dtype = contract.check_linear(x, weights, weight_scale, N, format, bias, wanted)
    out = x.new_empty((M, N), dtype=computed(dtype))
    if M:
        q, scale = x.new_empty((M, K), dtype=torch.int8), x.new_empty(M, dtype=torch.float32)
        called = BIT_LINEAR if of_weights is not None else f"{_OPS}linear"
        _quantize(x, x.contiguous().view(M, K), q, scale, called)
        _multiply(q, weights, weight_scale, scale, out, format)
        if bias is not None:
            out += bias
        if found is None:
            lead = (*x.shape[:-1], N)
            of_output = lead, strides_of(lead, 1), out.dtype, FORMATS[format].scale_per == "tensor"
            dtypes = contract.FLOATS[x.dtype], contract.FLOATS[out.dtype]
            plans.plan_addresses(_PLANS, key, format, dtypes, {"M": M, "N": N, "K": K}, key[-1], of_output)
    return out.to(wanted).view(*x.shape[:-1], N)


def _planned(
    run_at: Callable[..., bool],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    x: torch.Tensor,
    weights: int,
    weight_scale: float,
) -> torch.Tensor | None:
    """The product in `dtype` with the weights at an address. None if the contract must refuse a value, or if the rows
    are not aligned."""
    rows = x.contiguous()
    address = rows.data_ptr()
    if address % rows.element_size() or not contract.LEAST < weight_scale < contract.PAST:
        return None
    out = _empty(shape, strides, dtype)
    return out if run_at(address, weights, weight_scale, out.data_ptr()) else None


linear_forward = linear_constant = linear


@watched
def ternary_matmul_a16(
    activations: torch.Tensor,
    weights: torch.Tensor,
    weight_scale: float,
    N: int,
    format: str,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """See ops. It has no native kernel: each call unpacks the weights, and PyTorch multiplies in float32."""
    wanted = out_dtype or activations.dtype
    M, K = contract.check_a16(activations, weights, weight_scale, N, format, wanted)
    _ran(f"ternary_matmul_a16/{format}/float32/pytorch", {"M": M, "N": N, "K": K})
    codes, form = unpack(weights, N, K, format).float(), FORMATS[format]
    if form.scale_per == "group":
        scales = torch.from_numpy(form.stored_scales(numpy(weights).reshape(-1), (N, K)))
        codes *= scales.repeat_interleave(form.group, dim=1)
    with torch.autocast("cpu", enabled=False):
        out = activations.float().reshape(M, K) @ codes.t() * np.float32(weight_scale).item()
    return out.to(wanted).view(*activations.shape[:-1], N)


ternary_matmul_a16_constant = ternary_matmul_a16


@watched
def hadamard_quantize(
    x: torch.Tensor, signs: torch.Tensor | None, block_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """See ops."""
    M, K = contract.check_hadamard("hadamard_quantize", x, signs, block_size)
    q, scale = x.new_empty(x.shape, dtype=torch.int8), x.new_empty(x.shape[:-1], dtype=torch.float32)
    if M:
        outputs = {"q": numpy(q.view(M, K)), "scale": numpy(scale.view(-1)), "sum": np.empty(M, np.int32)}
        _rotate("hadamard_quantize", x, signs, block_size, "int8", outputs)
        if np.isnan(outputs["scale"]).any():
            legal = "values whose sums float32 holds"
            raise contract.refuse_nonfinite(f"{_OPS}hadamard_quantize", "x", x) or contract.refuse(
                "hadamard_quantize", "x", "with sums above float32", legal
            )
    return q, scale


@watched
def hadamard_transform(
    x: torch.Tensor,
    signs: torch.Tensor | None,
    block_size: int,
    inverse: bool = False,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """See ops."""
    op, wanted = "hadamard_transform", out_dtype or x.dtype
    M, K = contract.check_hadamard(op, x, signs, block_size)
    contract.check_float(op, "out_dtype", wanted)
    y = x.new_empty(x.shape, dtype=wanted)
    if M:
        before = None if inverse else signs
        _rotate(op, x, before, block_size, contract.FLOATS[wanted], {"y": numpy(y.view(M, K))})
        if inverse and signs is not None:
            _check_signs(op, signs)
            y *= signs
    return y


def _rotate(
    op: str, x: torch.Tensor, signs: torch.Tensor | None, block: int, dtype: str, outputs: dict[str, Any]
) -> None:
    """Run the kernel that writes `dtype`."""
    K = x.shape[-1]
    rows = x.contiguous().view(-1, K)
    if signs is not None:
        _check_signs(op, signs)
    inputs = {"x": numpy(rows), "signs": np.ones(K, np.int8) if signs is None else numpy(signs.contiguous())}
    key = hadamard_key(contract.FLOATS[x.dtype], dtype, "cpu")
    contract_of = HADAMARD["int8" if dtype == "int8" else "float"]
    _run(contract_of, key, inputs, outputs, {"M": len(rows), "K": K, "block": block})


def _check_signs(op: str, signs: torch.Tensor) -> None:
    """Raise InvalidArgumentError for a sign except -1 and 1."""
    wrong = torch.nonzero(signs.abs() != 1)
    if len(wrong):
        at = int(wrong[0, 0])
        raise contract.refuse(op, "signs", f"{int(signs[at])} at index {at}", "-1 and 1")


@watched
def i2s_quantize(x: torch.Tensor, scale: float) -> torch.Tensor:
    """See ops."""
    contract.check_elements("i2s_quantize", "x", x, contract.FLOATS, scale)
    q = x.new_empty(x.shape, dtype=torch.int8)
    if x.numel():
        inputs = {"x": numpy(x.float().contiguous().view(-1)), "scale": scale}
        key = KernelKey("cpu", I2S_QUANTIZE.name, "none", "int8")
        try:
            _run(I2S_QUANTIZE, key, inputs, {"q": numpy(q.view(-1))}, {"n": x.numel()})
        except InvalidArgumentError as error:
            raise contract.refuse_nonfinite(f"{_OPS}i2s_quantize", "x", x) or error from None
    return q


@watched
def i2s_dequantize(q: torch.Tensor, scale: float) -> torch.Tensor:
    """See ops."""
    contract.check_elements("i2s_dequantize", "q", q, (torch.int8,), scale)
    x = q.new_empty(q.shape, dtype=torch.float32)
    if q.numel():
        inputs = {"q": numpy(q.contiguous().view(-1)), "scale": scale}
        key = KernelKey("cpu", I2S_DEQUANTIZE.name, "none", "float32")
        _run(I2S_DEQUANTIZE, key, inputs, {"x": numpy(x.view(-1))}, {"n": q.numel()})
    return x


@watched
def pack(codes: torch.Tensor, scale: float, format: str) -> torch.Tensor:
    """See ops."""
    form = contract.check_codes(codes, scale, format)
    _ran(f"pack_codes/{format}/uint8/numpy", {"N": codes.shape[0], "K": codes.shape[1]})
    return torch.from_numpy(HUGE_PAGES.copied(form.pack(numpy(codes), np.float32(scale), tail="error")))


@watched
def unpack(packed: torch.Tensor, N: int, K: int, format: str) -> torch.Tensor:
    """See ops."""
    contract.check_weights("unpack", packed, N, K, format, packed)
    _ran(f"unpack_codes/{format}/int8/numpy", {"N": N, "K": K})
    codes, _ = FORMATS[format].unpack(numpy(packed), (N, K), tail="error")
    return torch.from_numpy(codes)


def _ran(kernel: str, axes: Axes) -> None:
    """Report to a monitor, and in receipts, what is computed without a native kernel."""
    watch, threads = hook.active, torch.get_num_threads()
    if watch is not None:
        watch.ran(hook.named(f"cpu/{kernel}", axes, threads))
        ran = kernel.rpartition("/")[2]
        receipts.collect(lambda: Receipt(kernel=f"cpu/{kernel}", ran=ran, runs=1, threads=threads, native=False))


def _run(op: Op, key: KernelKey, inputs: dict[str, Any], outputs: dict[str, Any], axes: Axes) -> None:
    count = torch.get_num_threads()
    dispatch.run(op, dispatch.select(key, axes, None, count), inputs, outputs, axes, count, flat=True)
