"""Calls of the ops, reported to a monitor."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from tritmark.harness.monitor import hook

P = ParamSpec("P")
R = TypeVar("R")


def watched(function: Callable[P, R]) -> Callable[P, R]:
    """An op whose calls are counted while a monitor is active. It adds 0.1 us to each call, so `linear` does the same
    itself."""
    name = f"torch.{function.__name__}"

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        watch = hook.active
        if watch is None or (thread := watch.begin()) is None:
            return function(*args, **kwargs)
        made: R = watch.call(thread, name, function, args, kwargs)
        return made

    return call
