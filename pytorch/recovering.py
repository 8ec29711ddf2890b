"""The op `bit_linear_recovering`: the product of a BitLinear in a worker process, which survives failures of kernels.

It is an op, so torch.compile, torch.export and gradients take it like `bit_linear`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.dispatch.array_library import TorchTensors
from tritmark.kernels.weights.packed import PackedWeights
from tritmark.torch import contract, cpu
from tritmark.torch.derived import Derived, check_width, of_state, refuse
from tritmark.torch.watched import watched

NAME = "bit_linear_recovering"
_given = TorchTensors().given
_SENT: dict[int, tuple[weakref.ref[torch.Tensor], PackedWeights]] = {}
"""Weights as the worker knows them, by the id of their packed tensor; dropped with that."""


def computes(kind: str) -> Callable[..., torch.Tensor]:
    """The implementation of the op on a device type."""
    return _on_cpu if kind == "cpu" else _refused


def refuse_memory(argument: str, tensor: torch.Tensor) -> InvalidArgumentError:
    """The error for a tensor that the worker does not have. That of the functions on arrays is the same."""
    legal = 'on cpu, whose memory workers share, or on_error="raise"'
    return refuse(argument, f"on {tensor.device}", legal)


def _bit_linear_recovering(
    x: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    N: int,
    divide: bool = False,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    # Late, since it imports the worker processes.
    from tritmark.kernels.recovering.layer import linear_in_worker

    made, scale = of_state(weight, weight_scale, N, divide)
    check_width(x, weight)
    wanted = out_dtype or x.dtype
    M, K, dtype = contract.check_linear(x, made.packed, scale, N, made.format, bias, wanted)
    if not M:
        return x.new_empty((*x.shape[:-1], N), dtype=wanted)
    try:
        y, _ = linear_in_worker(
            cpu.numpy(x.contiguous().view(M, K)),
            _sent(made, scale, (N, K)),
            dtype=contract.DTYPES[cpu.computed(dtype)],
            device="cpu",
            threads=torch.get_num_threads(),
        )
    except InvalidArgumentError as error:  # it names the kernel's op and options
        raise contract.refuse_nonfinite(cpu.BIT_LINEAR, "x", x) or error from None
    out: torch.Tensor = _given(y)
    if bias is not None:
        out += bias
    return out.to(wanted).view(*x.shape[:-1], N)


_bit_linear_recovering.__name__ = NAME
_on_cpu = watched(_bit_linear_recovering)


def _refused(x: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    given = {"x": x, "weight": weight, "weight_scale": weight_scale}
    raise next((refuse_memory(name, each) for name, each in given.items() if not each.is_cpu), refuse_memory("x", x))


def _sent(made: Derived, scale: float, shape: tuple[int, int]) -> PackedWeights:
    """The weights as one object, which stays the same from call to call, so that they are sent once."""
    place = id(made.packed)
    known = _SENT.get(place)
    if known is not None and known[0]() is made.packed and known[1].scale == scale and known[1].shape == shape:
        return known[1]
    # A NumPy view keeps its tensor, so it is one of another tensor with the same memory.
    found = PackedWeights(cpu.numpy(made.packed.detach()), made.format, shape, np.float32(scale))
    _SENT[place] = weakref.ref(made.packed, lambda gone: _drop(place, gone)), found
    return found


def _drop(place: int, gone: object) -> None:
    known = _SENT.get(place)
    if known is not None and known[0] is gone:
        del _SENT[place]
