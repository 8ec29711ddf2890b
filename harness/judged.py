"""Whether this process judges kernels. There a failure is a verdict, so nothing recovers from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_DEPTH = [0]


@contextmanager
def judging() -> Iterator[None]:
    """Inside, this process judges kernels."""
    begin()
    try:
        yield
    finally:
        _DEPTH[0] -= 1


def begin() -> None:
    """From now on, this process judges kernels."""
    _DEPTH[0] += 1


def judges() -> bool:
    """Whether this process judges kernels now."""
    return _DEPTH[0] > 0
