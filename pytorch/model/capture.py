"""What the modules of a model of transformers get and return in a forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Seen:
    """A call of a module."""

    given: tuple[Any, ...]
    """Positional arguments, then those by name in the order of the call."""
    out: Any
    named: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SeenAttention:
    """A call of the attention function: tensors (B, heads, T, D), the result (B, T, heads, D)."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor


@dataclass(slots=True)
class Pass:
    """A forward pass."""

    modules: dict[str, list[Seen]] = field(default_factory=dict)
    attention: dict[int, list[SeenAttention]] = field(default_factory=dict)
    """By the number of the block."""
    logits: Any = None
    """What the model returns."""

    def one(self, name: str) -> Seen | str:
        """The call of a module, or why there is not one."""
        calls = self.modules.get(name)
        return calls[0] if calls and len(calls) == 1 else f"is called {len(calls or ())} times"


@contextmanager
def captured(model: Any) -> Iterator[Pass]:
    """The calls of all modules, and of the attention function, in the block."""
    found = Pass()

    def watch(name: str) -> Any:
        def hook(module: Any, given: tuple[Any, ...], named: dict[str, Any], out: Any) -> None:
            found.modules.setdefault(name, []).append(Seen((*given, *named.values()), out, named))

        return hook

    handles = [
        module.register_forward_hook(watch(name), with_kwargs=True) for name, module in model.named_modules() if name
    ]
    try:
        with _attention(found):
            yield found
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _attention(found: Pass) -> Iterator[None]:
    """transformers looks the attention function up in each call (AttentionInterface)."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    functions = ALL_ATTENTION_FUNCTIONS
    look_up = functions.get_interface

    def recorded(*asked: Any, **named: Any) -> Any:
        function = look_up(*asked, **named)

        def call(module: Any, q: Any, k: Any, v: Any, *given: Any, **options: Any) -> Any:
            made = function(module, q, k, v, *given, **options)
            # A static cache is written again by the next pass.
            seen = SeenAttention(q, k.clone(), v.clone(), made[0])
            found.attention.setdefault(int(module.layer_idx), []).append(seen)
            return made

        return call

    functions.get_interface = recorded
    try:
        yield
    finally:
        del functions.get_interface
