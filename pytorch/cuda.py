"""The ops on CUDA tensors: one plan per shape, launched on torch's current stream of the tensors' device.

Host time matters here: at M = 1 the kernels take a few microseconds. A call with a known shape is one table look-up, an
allocation by torch (two with a workspace), and one driver call per launch. Most of the remaining time is attribute
access on tensors, so each attribute is read once. Values are not checked, because that would wait for the device: a row
of activations with a NaN or infinity gives NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import torch

from tritmark.harness.dtypes import named_dtype, strides_of
from tritmark.harness.errors import DeviceError, DeviceFaultError, InvalidArgumentError
from tritmark.harness.machine import libcuda
from tritmark.harness.monitor import hook
from tritmark.harness.spec import Axes, KernelKey, Op
from tritmark.kernels.cuda.launch import DEVICE
from tritmark.kernels.cuda.plans.plan import SCALAR, Planner
from tritmark.kernels.cuda.plans.primary import primary_context
from tritmark.kernels.formats.base import Format
from tritmark.kernels.hadamard_quantize.spec import OPS as HADAMARD
from tritmark.kernels.hadamard_quantize.spec import key_for as hadamard_key
from tritmark.kernels.i2s_dequantize.spec import OP as I2S_DEQUANTIZE
from tritmark.kernels.i2s_quantize.spec import OP as I2S_QUANTIZE
from tritmark.kernels.numerics.input_dtypes import NARROW
from tritmark.kernels.pack_codes.spec import OP as PACK_CODES
from tritmark.kernels.ternary_linear.plan import add_product, add_quantization, linear_plan
from tritmark.kernels.ternary_matmul_a16.spec import OPS as TERNARY_MATMUL_A16
from tritmark.kernels.ternary_matmul_experts.spec import OP as TERNARY_MATMUL_EXPERTS
from tritmark.kernels.unpack_codes.spec import OP as UNPACK_CODES
from tritmark.kernels.weights.packed import known_format
from tritmark.torch import contract
from tritmark.torch.allocator import allocator
from tritmark.torch.watched import watched

_WIDE = 15
"""Mask of the address bits that must be zero for 16-byte loads."""
_LEAST, _PAST = contract.LEAST, contract.PAST
_MOST_PLANS = 16384
_FAULTS = range(700, 720)
"""CUresults after a fault of a kernel."""


Plan = TypeVar("Plan")


class TorchPlan(NamedTuple):
    """A bound sequence of launches."""

    launch: Callable[..., int]
    room: int
    """Bytes of the workspace; 0 for none."""
    ran: hook.KernelRan
    """For a monitor."""


class LinearPlan(NamedTuple):
    """The plan of a linear layer."""

    launch: Callable[..., int]
    room: int
    """Bytes of the workspace; 0 for none."""
    shape: tuple[int, ...]
    """Shape of the output."""
    strides: tuple[int, ...]
    """Strides of the output."""
    dtype: torch.dtype
    """Dtype of the product."""
    wanted: torch.dtype
    """Dtype of the output."""
    form: Format
    """Format of the weights."""
    scaled: bool
    """Whether that format stores scales in its bytes."""
    ran: hook.KernelRan
    """For a monitor."""


_PLANS: dict[Hashable, Any] = {}
"""Plans, by everything that a call was checked for."""


def _raw_stream(index: int) -> int:
    """The handle of torch's current stream on a device."""
    return int(torch.cuda.current_stream(index).cuda_stream)


# The same without a stream object; the generated code of torch.compile calls it.
_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _raw_stream)

_empty = allocator("cuda")
# No device has the index -2, so the fallback never matches.
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -2)


def _kept(key: Hashable, made: Plan) -> Plan:
    if len(_PLANS) >= _MOST_PLANS:
        _PLANS.clear()
    _PLANS[key] = made
    return made


def _made(planner: Planner, axes: Axes) -> TorchPlan:
    return TorchPlan(*planner.made(), _ran(planner.kernels, axes))


def _ran(kernels: Sequence[str], axes: Axes) -> hook.KernelRan:
    """What a plan reports to a monitor: of several kernels the last."""
    return hook.KernelRan(kernels[-1] if kernels else "cuda", axes, asynchronous=True)


def _put(plan: TorchPlan, like: torch.Tensor, addresses: tuple[int, ...], scalar: float = 0.0) -> None:
    """Launch a plan; torch allocates the workspace on the device of `like`."""
    watch = hook.active
    if watch is not None:
        watch.ran(plan.ran)
    room = like.new_empty((plan.room,), dtype=torch.uint8) if plan.room else None
    try:
        space = 0 if room is None else room.data_ptr()
        code = plan.launch(_stream(like.get_device()), (*addresses, space), scalar)
    except ValueError as why:
        raise _misaligned(why) from None
    if code:
        raise _refused(code)


def _misaligned(why: ValueError) -> InvalidArgumentError:
    """Only the weights can be misaligned: activations are copied if they are, and torch aligns its allocations."""
    return contract.refuse("launch", "weights", str(why), "a tensor that begins at the start of its storage")


def _refused(code: int) -> DeviceError:
    kind = DeviceFaultError if code in _FAULTS else DeviceError
    return kind(f"launch refused: {libcuda.words(code)} (CUDA error {code})", next_step="start a new process")


def _weights_key(weights: torch.Tensor) -> tuple[Hashable, ...]:
    """Facts about packed weights that ops check."""
    return weights.shape, weights.dtype, weights.get_device(), weights.is_contiguous()


def _whole(x: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor with the same values, aligned for 16-byte loads."""
    x = x.contiguous()
    return x.clone() if x.data_ptr() & _WIDE else x


def weights_mark(weights: torch.Tensor) -> tuple[Any, ...]:
    """Facts about packed weights that linear checks; the last one is their address. Keep it for constant weights."""
    return weights.numel(), weights.dtype, weights.get_device(), weights.is_contiguous(), weights.data_ptr()


def _linear(constant: bool) -> Callable[..., torch.Tensor]:
    """linear with constant weights or not, see ops."""

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
        watch = hook.active
        if watch is not None and (thread := watch.begin()) is not None:
            given = x, weights, weight_scale, N, format, bias, out_dtype, of_weights
            seen: torch.Tensor = watch.call(thread, "torch.linear", linear, given, None)
            return seen
        address = x.data_ptr()
        if address & _WIDE or not x.is_contiguous():
            x = _whole(x)
            address = x.data_ptr()
        where = x.get_device()
        bytes_of, dtype_of, index_of, whole, place = of_weights or weights_mark(weights)
        # Python hashes torch.Size and torch.dtype quickly.
        key = (
            x.shape,
            x.dtype,
            where,
            bytes_of,
            dtype_of,
            index_of,
            whole,
            N,
            format,
            out_dtype,
            bias if bias is None else (bias.shape, bias.dtype, bias.get_device()),
            constant,
        )
        plan = _PLANS.get(key)
        if plan is None:
            wanted = out_dtype or x.dtype
            M, K, dtype = contract.check_linear(x, weights, weight_scale, N, format, bias, wanted)
            shape = (*x.shape[:-1], N)
            if not M:
                return x.new_empty(shape, dtype=wanted)
            names = contract.FLOATS[x.dtype], weights.numel(), format, contract.FLOATS[dtype]
            axes = {"M": M, "N": N, "K": K}
            kernels: list[str] = []
            context = primary_context(where)
            launch, room = linear_plan(context, axes, *names, constant_weights=constant, kernels=kernels)
            form = known_format("linear", format)
            scaled, ran = form.scale_per != "tensor", _ran(kernels, axes)
            plan = _kept(key, LinearPlan(launch, room, shape, strides_of(shape, 1), dtype, wanted, form, scaled, ran))
        elif plan.scaled or not _LEAST < weight_scale < _PAST:
            contract.check_weight_scale("linear", weight_scale, plan.form)
        launch, room, shape, strides, dtype, wanted, _, _, ran = plan
        if watch is not None:
            watch.ran(ran)
        out = _empty(shape, strides, dtype) if where == _current_device() else x.new_empty(shape, dtype=dtype)
        space = weights.new_empty((room,)) if room else None
        addresses = address, place, out.data_ptr(), 0 if space is None else space.data_ptr()
        try:
            code = launch(_stream(where), addresses, weight_scale)
        except ValueError as why:
            raise _misaligned(why) from None
        if code:
            raise _refused(code)
        if bias is not None:
            out += bias
        return out if dtype is wanted else out.to(wanted)

    return linear


linear = linear_forward = _linear(False)
linear_constant = _linear(True)


@watched
def activation_quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See ops."""
    x = _whole(x)
    q, scale = torch.empty_like(x, dtype=torch.int8), x.new_empty(x.shape[:-1], dtype=torch.float32)
    key = "activation_quantize", x.get_device(), x.dtype, x.shape
    plan = _PLANS.get(key)
    if plan is None:
        K = contract.check_rows("activation_quantize", "x", x, contract.FLOATS)
        M = x.numel() // K
        if not M:
            return q, scale
        context = primary_context(x.get_device())
        planner = Planner(context)
        given = planner.given((M * K,), named_dtype(contract.FLOATS[x.dtype]))
        outputs = {"q": planner.given((M, K), "int8"), "scale": planner.given((M,), "float32")}
        add_quantization(planner, given, outputs, M, K)
        plan = _kept(key, _made(planner, {"M": M, "K": K}))
    _put(plan, q, (x.data_ptr(), q.data_ptr(), scale.data_ptr()))
    return q, scale


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
    activations, act_scale = _whole(activations), _whole(act_scale)
    shape, where = activations.shape, activations.get_device()
    key = (
        "ternary_matmul",
        where,
        activations.dtype,
        shape,
        *_weights_key(weights),
        act_scale.dtype,
        act_scale.shape,
        act_scale.get_device(),
        N,
        format,
        out_dtype,
    )
    plan = _PLANS.get(key)
    if plan is None:
        M, K = contract.check_matmul(activations, weights, weight_scale, act_scale, N, format, out_dtype)
        if not M:
            return activations.new_empty((*shape[:-1], N), dtype=out_dtype)
        context = primary_context(where)
        planner = Planner(context)
        arrays = (
            planner.given((M, K), "int8"),
            planner.given((weights.numel(),), "uint8"),
            planner.given((M,), "float32"),
            planner.given((M, N), named_dtype(contract.DTYPES[out_dtype])),
        )
        add_product(planner, arrays, format, {"M": M, "N": N, "K": K})
        plan = _kept(key, _made(planner, {"M": M, "N": N, "K": K}))
    else:
        contract.check_weight_scale("ternary_matmul", weight_scale, known_format("ternary_matmul", format))
    out = activations.new_empty((*shape[:-1], N), dtype=out_dtype)
    addresses = activations.data_ptr(), weights.data_ptr(), act_scale.data_ptr(), out.data_ptr()
    _put(plan, weights, addresses, weight_scale)
    return out


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
    activations, weight_scale, act_scale = _whole(activations), _whole(weight_scale), _whole(act_scale)
    offsets, where = _whole(offsets), activations.get_device()
    key = (
        "ternary_matmul_experts",
        where,
        activations.dtype,
        activations.shape,
        *_weights_key(weights),
        *((each.dtype, each.shape, each.get_device()) for each in (weight_scale, act_scale, offsets)),
        N,
        format,
        out_dtype,
    )
    plan = _PLANS.get(key)
    if plan is None:
        given = weight_scale, act_scale, offsets
        axes = contract.check_experts(activations, weights, *given, N, format, out_dtype)
        if not axes["M"]:
            return activations.new_empty((0, N), dtype=out_dtype)
        planner, M, E, K = Planner(primary_context(where)), axes["M"], axes["E"], axes["K"]
        inputs = {
            "activations": planner.given((M, K), "int8"),
            "weights": planner.given((weights.numel(),), "uint8"),
            "weight_scale": planner.given((E,), "float32"),
            "act_scale": planner.given((M,), "float32"),
            "offsets": planner.given((E + 1,), "int32"),
        }
        out_name = contract.DTYPES[out_dtype]
        output = {"out": planner.given((M, N), named_dtype(out_name))}
        op = TERNARY_MATMUL_EXPERTS
        planner.add(op, KernelKey(DEVICE, op.name, format, out_name), inputs, output, axes)
        plan = _kept(key, _made(planner, axes))
    out = activations.new_empty((activations.shape[0], N), dtype=out_dtype)
    tensors = activations, weights, weight_scale, act_scale, offsets, out
    _put(plan, weights, tuple(each.data_ptr() for each in tensors))
    return out


def _matmul_a16(constant: bool) -> Callable[..., torch.Tensor]:
    """ternary_matmul_a16 with constant weights or not, see ops."""

    def ternary_matmul_a16(
        activations: torch.Tensor,
        weights: torch.Tensor,
        weight_scale: float,
        N: int,
        format: str,
        out_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        activations = _whole(activations)
        shape, where = activations.shape, activations.get_device()
        wanted = out_dtype or activations.dtype
        key = "ternary_matmul_a16", where, activations.dtype, shape, *_weights_key(weights), N, format, wanted, constant
        plan = _PLANS.get(key)
        if plan is None:
            M, K = contract.check_a16(activations, weights, weight_scale, N, format, wanted)
            if not M:
                return activations.new_empty((*shape[:-1], N), dtype=wanted)
            planner, given = Planner(primary_context(where)), contract.HALVES[activations.dtype]
            inputs = {
                "activations": planner.given((M, K), named_dtype(given)),
                "weights": planner.given((weights.numel(),), "uint8", constant=constant),
                "weight_scale": SCALAR,
            }
            out_name = contract.FLOATS[wanted]
            output = {"out": planner.given((M, N), named_dtype(out_name))}
            op = TERNARY_MATMUL_A16[given]
            axes = {"M": M, "N": N, "K": K}
            planner.add(op, KernelKey(DEVICE, op.name, format, out_name), inputs, output, axes)
            plan = _kept(key, _made(planner, axes))
        else:
            contract.check_scale("ternary_matmul_a16", "weight_scale", weight_scale)
        out = activations.new_empty((*shape[:-1], N), dtype=wanted)
        _put(plan, weights, (activations.data_ptr(), weights.data_ptr(), out.data_ptr()), weight_scale)
        return out

    return ternary_matmul_a16


ternary_matmul_a16 = watched(_matmul_a16(False))
ternary_matmul_a16_constant = watched(_matmul_a16(True))


@watched
def hadamard_quantize(
    x: torch.Tensor, signs: torch.Tensor | None, block_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """See ops."""
    x = _whole(x)
    q, scale = torch.empty_like(x, dtype=torch.int8), x.new_empty(x.shape[:-1], dtype=torch.float32)
    _rotate("hadamard_quantize", x, signs, block_size, "int8", (q, scale))
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
    contract.check_float(op, "out_dtype", wanted)
    if inverse:
        contract.check_hadamard(op, x, signs, block_size)
    x = _whole(x)
    y = torch.empty_like(x, dtype=wanted)
    _rotate(op, x, None if inverse else signs, block_size, contract.FLOATS[wanted], (y,))
    if inverse and signs is not None:
        y *= signs
    return y


def _rotate(
    op: str, x: torch.Tensor, signs: torch.Tensor | None, block: int, dtype: str, outputs: tuple[torch.Tensor, ...]
) -> None:
    """Launch the plan that writes `dtype`; a sum of codes is in the workspace."""
    where, given = x.get_device(), None if signs is None else (signs.shape, signs.dtype, signs.get_device())
    key = op, where, x.dtype, x.shape, given, block, dtype
    plan = _PLANS.get(key)
    if plan is None:
        M, K = contract.check_hadamard(op, x, signs, block)
        if not M:
            return
        planner = Planner(primary_context(where))
        inputs = {
            "x": planner.given((M, K), named_dtype(contract.FLOATS[x.dtype])),
            "signs": planner.given((K,), "int8"),
        }
        names = ("q", "scale") if dtype == "int8" else ("y",)
        shapes = ((M, K), (M,))
        found = {
            name: planner.given(shape, named_dtype(dtype if name != "scale" else "float32"))
            for name, shape in zip(names, shapes, strict=False)
        }
        axes = {"M": M, "K": K, "block": block}
        of = hadamard_key(contract.FLOATS[x.dtype], dtype, DEVICE)
        planner.add(HADAMARD["int8" if dtype == "int8" else "float"], of, inputs, found, axes)
        plan = _kept(key, _made(planner, axes))
    factors = _ones(where, x.shape[-1]) if signs is None else signs.contiguous()
    _put(plan, x, (x.data_ptr(), factors.data_ptr(), *(each.data_ptr() for each in outputs)))


@lru_cache(maxsize=64)
def _ones(index: int, K: int) -> torch.Tensor:
    """Signs of 1 on a device."""
    made = torch.ones(K, dtype=torch.int8, device=f"cuda:{index}")
    torch.cuda.synchronize(index)  # other streams may read them
    return made


@watched
def i2s_quantize(x: torch.Tensor, scale: float) -> torch.Tensor:
    """See ops."""
    contract.check_elements("i2s_quantize", "x", x, contract.FLOATS, scale)
    x = _whole(x)
    q = torch.empty_like(x, dtype=torch.int8)
    dtype = contract.FLOATS[x.dtype]
    key = KernelKey(DEVICE, I2S_QUANTIZE.name, dtype if dtype in NARROW else "none", "int8")
    return _elementwise(I2S_QUANTIZE, key, ("x", x), ("q", q), {"n": x.numel()}, {"scale": scale})


@watched
def i2s_dequantize(q: torch.Tensor, scale: float) -> torch.Tensor:
    """See ops."""
    contract.check_elements("i2s_dequantize", "q", q, (torch.int8,), scale)
    q = _whole(q)
    x = torch.empty_like(q, dtype=torch.float32)
    key = KernelKey(DEVICE, I2S_DEQUANTIZE.name, "none", "float32")
    return _elementwise(I2S_DEQUANTIZE, key, ("q", q), ("x", x), {"n": q.numel()}, {"scale": scale})


@watched
def pack(codes: torch.Tensor, scale: float, format: str) -> torch.Tensor:
    """See ops."""
    form = contract.check_codes(codes, scale, format)
    N, K = codes.shape
    packed = codes.new_empty(form.packed_shape((N, K)), dtype=torch.uint8)
    key = KernelKey(DEVICE, PACK_CODES.name, format, "uint8")
    scales = torch.full((1, 1), scale, device=codes.device)
    more = {"scales": scales}
    return _elementwise(PACK_CODES, key, ("codes", _whole(codes)), ("packed", packed), {"N": N, "K": K}, {}, more)


@watched
def unpack(packed: torch.Tensor, N: int, K: int, format: str) -> torch.Tensor:
    """See ops."""
    contract.check_weights("unpack", packed, N, K, format, packed)
    codes = packed.new_empty((N, K), dtype=torch.int8)
    key = KernelKey(DEVICE, UNPACK_CODES.name, format, "int8")
    return _elementwise(UNPACK_CODES, key, ("packed", _whole(packed)), ("codes", codes), {"N": N, "K": K}, {})


def _elementwise(
    op: Op,
    key: KernelKey,
    given: tuple[str, torch.Tensor],
    made: tuple[str, torch.Tensor],
    axes: Axes,
    scalars: Mapping[str, float],
    more: Mapping[str, torch.Tensor] | None = None,
) -> torch.Tensor:
    """Run an op from one tensor to another, with numbers that are part of its plan, and further input tensors."""
    tensors = {given[0]: given[1], **(more or {}), made[0]: made[1]}
    out = made[1]
    if not out.numel():
        return out
    where = out.get_device()
    known = key, where, tuple(axes.values()), tuple(scalars.values())
    plan = _PLANS.get(known)
    if plan is None:
        context = primary_context(where)
        planner = Planner(context)
        arrays = {
            name: planner.given(tuple(each.shape) if len(axes) > 1 else (each.numel(),), str(each.dtype)[6:])
            for name, each in tensors.items()
        }
        output = {made[0]: arrays.pop(made[0])}
        planner.add(op, key, {**arrays, **scalars}, output, axes)
        plan = _kept(known, _made(planner, axes))
    _put(plan, out, tuple(each.data_ptr() for each in tensors.values()))
    return out
