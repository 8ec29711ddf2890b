"""Thresholds of the codes of i2s_quantize. They are found once by division, so that kernels only compare
(cython_ext/src/steps/steps.h has the same algorithm)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_MAX_FINITE = 0x7F7FFFFF
_BELOW_1_5 = np.nextafter(np.float32(1.5), np.float32(0))


class Steps(NamedTuple):
    """Code 1 is x > one, code -1 is -x > one, code -2 is -x > two."""

    one: np.float32
    """The largest x of code 0: its quotient is at most 0.5, which rounds to the even 0."""
    two: np.float32
    """The largest magnitude of code -1: its quotient is below 1.5, which rounds to the even 2."""


def find_steps(scale: np.float32) -> Steps:
    """The thresholds for a scale, which is finite and above zero."""
    return Steps(_last_within(scale, np.float32(0.5)), _last_within(scale, _BELOW_1_5))


def _last_within(scale: np.float32, limit: np.float32) -> np.float32:
    """The largest finite x >= 0 whose float32 quotient by `scale` is at most `limit`.

    It is found bit by bit from the top, so every scale works: a quotient that overflows is above the limit, one that
    underflows is below it.
    """
    last = 0
    with np.errstate(over="ignore", under="ignore"):
        for bit in reversed(range(31)):
            following = last | 1 << bit
            if following <= _MAX_FINITE and np.uint32(following).view(np.float32) / scale <= limit:
                last = following
    return np.uint32(last).view(np.float32)
