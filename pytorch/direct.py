"""Which calls may go past PyTorch's dispatcher, which takes part of what a small product costs the host (12.8 us
through it and 10.1 past it on an H200's host, outside of this project).

The dispatcher finds what computes an op for the device of its tensors, unless something else wants to see the call: a
mode (`FakeTensorMode`, `torch.device(...)`), a transformation (`vmap`), a tracer, a profiler, or a tensor that is more
than its memory (of a subclass, a negation that is not done yet). Each of these is asked for here, by what costs least:
the dispatcher's own keys would tell of all at once, and their objects cost more than is won. Where PyTorch has no such
question, for these names are its own, every call goes through the dispatcher.
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
    """Whether nothing but the op itself sees a call of `linear_constant`, or its like, with these, of which none needs
    a gradient, on that kind of device. Not to be traced: ask torch.compiler.is_compiling before."""
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
