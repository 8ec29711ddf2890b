"""Prepares calls before the first real one: compiles and loads kernels, selects them, binds launches and makes
plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from tritmark.harness.contract import check_threads
from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.nearest import misspelt
from tritmark.harness.providers import installed
from tritmark.harness.spec import Axes, KernelKey, Op
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.linear.linear import QuantizedLinear
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.ternary_matmul.spec import OP as TERNARY_MATMUL
from tritmark.kernels.weights.packed import pack_weights, preferred_format

_CALLED = "warm_up"
_FAMILY = "zero"


@dataclass(frozen=True, slots=True)
class WarmedCall:
    """A call that was made once."""

    what: str
    """The layer or op, with its axes."""
    kernel: str
    """Id of the variant that ran; of several the last."""
    seconds: float
    """Its time, with compilation."""


def warm_up(
    calls: Iterable[QuantizedLinear | tuple[str, Mapping[str, int]]],
    *,
    rows: Sequence[int] = (1,),
    dtype: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
) -> list[WarmedCall]:
    """Make each call once with zeros, so that the first real one compiles, loads and selects nothing.

    `calls` has layers, each called with every number of `rows` of float32, and pairs of an op and its axes, such as
    ("i2s_quantize", {"n": 4096}), called on `device` with that thread limit. `dtype` is that of the pairs' outputs, by
    default float32 for products, otherwise the first that the op has. Products read the weight format that the device
    prefers.

    Returns the calls in order, with the seconds of each. Raises InvalidArgumentError for an unknown op, wrong axes or
    an invalid number of rows, before anything runs; and the errors of the calls.
    """
    asked = list(calls)
    check_threads(_CALLED, threads)
    dispatch.check_device(_CALLED, device)
    if not rows or not all(type(M) is int and M > 0 for M in rows):
        raise InvalidArgumentError(op=_CALLED, argument="rows", found=repr(rows), legal="integers of 1 or more")
    pairs = {nth: _checked(each) for nth, each in enumerate(asked) if not isinstance(each, QuantizedLinear)}
    found: list[WarmedCall] = []
    for nth, each in enumerate(asked):
        if isinstance(each, QuantizedLinear):
            found += [_layer(each, M) for M in rows]
        else:
            found.append(_op(*pairs[nth], device, dtype, threads))
    return found


def _checked(pair: Any) -> tuple[Op, Axes]:
    """The op and axes of a pair."""
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], Mapping):
        found, legal = f"{pair!r}", "layers, and pairs of an op and its axes"
        raise InvalidArgumentError(op=_CALLED, argument="calls", found=found, legal=legal)
    name, axes = pair
    ops = installed().ops
    if name not in ops:
        found = f"op {misspelt(str(name), ops)}"
        raise InvalidArgumentError(op=_CALLED, argument="calls", found=found, legal=", ".join(ops))
    op = ops[name]
    if set(axes) != set(op.axes) or not all(type(size) is int and size > 0 for size in axes.values()):
        legal = ", ".join(f"{axis}: size" for axis in op.axes)
        raise InvalidArgumentError(op=_CALLED, argument=f"axes of {name}", found=repr(dict(axes)), legal=legal)
    return op, {axis: axes[axis] for axis in op.axes}


def _layer(layer: QuantizedLinear, M: int) -> WarmedCall:
    x = np.zeros((M, layer.in_features), np.float32)
    begin = perf_counter()
    layer(x)
    seconds = perf_counter() - begin
    receipt = layer.receipt
    what = f"QuantizedLinear M={M} N={layer.out_features} K={layer.in_features}"
    return WarmedCall(what, "" if receipt is None else receipt.kernel, seconds)


def _op(op: Op, axes: Axes, device: str, dtype: str | None, threads: int | None) -> WarmedCall:
    begin = perf_counter()
    key = _key(op, axes, device, dtype)
    what = f"{op.name} {' '.join(f'{axis}={size}' for axis, size in axes.items())}"
    if op is TERNARY_MATMUL:  # its choice of a kernel depends on the weights
        return WarmedCall(what, _product(key, axes, threads), perf_counter() - begin)
    chosen = dispatch.select(key, axes, None, threads)
    family = _FAMILY if _FAMILY in op.input_families else op.input_families[0]
    inputs = op.encode(op.generate(axes, family, np.random.default_rng(0)), axes, key.format)
    like = op.outputs_like(axes, key)
    outputs = {name: np.empty(shape, named_dtype(kind)) for name, (shape, kind) in like.items()}
    dispatch.run(op, chosen, inputs, outputs, axes, dispatch.threads_for(key, threads))
    return WarmedCall(what, chosen.id, perf_counter() - begin)


def _product(key: KernelKey, axes: Axes, threads: int | None) -> str:
    weights = pack_weights(np.zeros((axes["N"], axes["K"]), np.int8), 1.0, format=key.weight_format)
    rows = np.zeros((axes["M"], axes["K"]), np.int8)
    return with_receipt(rows, weights, dtype=key.dtype, device=key.device, threads=threads)[1].kernel


def _key(op: Op, axes: Axes, device: str, dtype: str | None) -> KernelKey:
    """The key of calls with default dtypes and formats."""
    request = f"{op.name} on {device!r}" + ("" if dtype is None else f" to {dtype}")
    dispatch.registry().device(device, request)
    keys = [each for each in installed().keys(op.name) if each.device == device]
    wanted = dtype or (op.stored.dtype if op.stored is not None else keys[0].dtype if keys else "")
    keys = [each for each in keys if each.dtype == wanted]
    if not keys:
        raise NoCompatibleKernelError(request=request, candidates=[])
    if op.interchangeable is not None and all(each.format in FORMATS for each in keys):
        format = preferred_format(device, (axes["N"], axes["K"]))
        return next((each for each in keys if each.format == format), keys[0])
    return keys[0]
