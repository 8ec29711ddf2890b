"""A step of a model of transformers: tokens to the most likely next ones, with its cache."""

from __future__ import annotations

from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary

import torch

_NAMES = ("cache", "past_key_values")
"""The argument and the output with the keys and values of earlier tokens: the second before transformers 5.20."""
_KNOWN: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""By model: a signature takes longer than several operations of a step."""


def step(model: Any, tokens: torch.Tensor, cache: Any = None) -> tuple[torch.Tensor, Any]:
    """The most likely tokens (B, 1) behind tokens (B, T), and the cache with these."""
    name = cache_name(model)
    out = model(tokens, use_cache=True, logits_to_keep=1, **{name: cache})
    return out.logits[:, -1:].argmax(-1), out[name]


def cache_name(model: Any) -> str:
    """The argument of a model with its cache, and the name of the output."""
    found = _KNOWN.get(model)
    if found is None:
        known = signature(model.forward).parameters
        found = _KNOWN[model] = next(each for each in _NAMES if each in known)
    return found


def empty_cache(model: Any) -> Any:
    """A cache without tokens."""
    import transformers

    known = signature(transformers.DynamicCache.__init__).parameters
    return transformers.DynamicCache(**({"config": model.config} if "config" in known else {}))
