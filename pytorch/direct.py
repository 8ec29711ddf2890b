"""Decide which calls may bypass PyTorch's dispatcher, to save host time. For a small product a call took 12.8 us with
the dispatcher and 10.1 us without it on the host of an H200.

The dispatcher selects the implementation for the tensors' device unless something intercepts the call: a mode
(`FakeTensorMode`, `torch.device(...)`), a transformation (`vmap`), a tracer, a profiler, or a tensor with special
semantics (a subclass, a lazy negation). The cheapest test for each is used here. Dispatch keys would cover all of them,
but their Python objects cost more time than is saved. The tests are private functions of PyTorch; if one is missing,
every call uses the dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

_BIASES = (type(None), torch.Tensor, torch.nn.Parameter)
_STRIDED = torch.strided
_MISSING: list[str] = []


def _question(place: object, path: str) -> Callable[[], Any]:
    for name in path.split("."):
        place = getattr(place, name, None)
    if place is None:
        _MISSING.append(path)
    return cast(Callable[[], Any], place)


_modes_of_functions = _question(torch._C, "_len_torch_function_stack")
_modes_of_dispatch = _question(torch._C, "_len_torch_dispatch_stack")
_transformed = _question(torch._C, "_functorch.maybe_current_level")
_traced = _question(torch._C, "_is_tracing")
_profiled = _question(torch.autograd, "_profiler_enabled")


def _unseen(kind: str, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether nothing intercepts a call of `linear_constant` or `ternary_matmul_a16_constant` on this device type. No
    argument may need a gradient. Do not trace it: check torch.compiler.is_compiling first."""
    return (
        type(x) is torch.Tensor
        and type(weights) is torch.Tensor
        and type(bias) in _BIASES
        and (x.is_cuda if kind == "cuda" else x.is_cpu)
        and not x.is_neg()
        and x.layout is _STRIDED
        and not _modes_of_functions()
        and not _modes_of_dispatch()
        and _transformed() is None
        and not _traced()
        and not _profiled()
        and x.data_ptr() != 0  # a functional tensor, or an empty one
    )


def _never(kind: str, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> bool:
    return False


unseen: Callable[[str, torch.Tensor, torch.Tensor, torch.Tensor | None], bool] = _never if _MISSING else _unseen
