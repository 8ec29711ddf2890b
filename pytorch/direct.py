"""Which calls may go past PyTorch's dispatcher, which takes a quarter of what a small product costs the host.

The dispatcher finds what computes an op for the device of its tensors, unless something else wants to see the call: a
mode (`FakeTensorMode`, `torch.device(...)`), a transformation (`vmap`), a tracer, a profiler, or a tensor that is more
than its memory (of a subclass, a batch, a negation that is not done yet). Each of these shows in the dispatch keys of a
tensor or of the thread, or is asked for here. Where PyTorch has no such question, for these names are its own, every
call goes through the dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

_C = torch._C
_ASKED = (
    (_C, "_dispatch_keys"),
    (_C, "_dispatch_tls_local_include_set"),
    (_C, "_len_torch_function_stack"),
    (torch.autograd, "_profiler_enabled"),
)
_BIASES = (type(None), torch.Tensor, torch.nn.Parameter)


def _in_new_threads(asked: Callable[[], int]) -> frozenset[int]:
    """What a thread in which nothing sees calls says, in inference mode and not."""

    def answer(inference: bool) -> int:
        with torch.inference_mode(inference):
            return asked()

    with ThreadPoolExecutor(1) as new:
        return frozenset(new.map(answer, (False, True)))


@cache
def _idle() -> frozenset[int]:
    """The keys of a thread in which nothing else sees calls."""
    return _in_new_threads(lambda: int(_C._dispatch_tls_local_include_set().raw_repr()))


@cache
def _plain(kind: str) -> frozenset[int]:
    """The keys of tensors on that kind of device that are their memory and no more."""
    return _in_new_threads(lambda: int(_C._dispatch_keys(torch.empty(0, device=kind)).raw_repr()))


def _unseen(kind: str, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether nothing but the op itself sees a call of `linear_constant`, or its like, with these, of which none needs
    a gradient, on that kind of device. Not to be traced: ask torch.compiler.is_compiling before."""
    return (
        type(x) is torch.Tensor
        and type(weights) is torch.Tensor
        and type(bias) in _BIASES
        and not _C._len_torch_function_stack()
        and not torch.autograd._profiler_enabled()
        and _C._dispatch_tls_local_include_set().raw_repr() in _idle()
        and _C._dispatch_keys(x).raw_repr() in _plain(kind)
    )


def _never(kind: str, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> bool:
    return False


unseen: Callable[[str, torch.Tensor, torch.Tensor, torch.Tensor | None], bool] = (
    _unseen if all(hasattr(place, name) for place, name in _ASKED) else _never
)
