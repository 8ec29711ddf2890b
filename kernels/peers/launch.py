"""What the peers share: a launch that calls somebody else's code, and float32's arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

INSTALL = "not installed: pip install 'tritmark[peers]'"

UNIT = 2.0**-24
"""Unit roundoff of float32."""

_SLAB = 1 << 22
"""Weights that are widened at a time."""


def gamma(n: int) -> float:
    """The largest relative error that `n` roundings in float32 make together (Higham, Accuracy and Stability, lemma
    3.1)."""
    return n * UNIT / (1 - n * UNIT)


def times(left: npt.NDArray[np.float64], weights: npt.NDArray[np.int8], plus: int = 0) -> npt.NDArray[np.float64]:
    """left (M, K) times weights (N, K) + plus, transposed, in float64."""
    rows = max(1, _SLAB // weights.shape[1])
    slabs = [left @ (weights[n : n + rows].astype(np.float64) + plus).T for n in range(0, len(weights), rows)]
    return np.concatenate(slabs, axis=1)


class PeerLaunch:
    """A call of a peer, counted."""

    pointer = None
    """Its arguments are not the native clock's, so Python's times it."""
    bad = -1
    """Peers are given what the contract admits, and do not look for anything else."""

    def __init__(self, name: str, threads: int, call: Callable[[], None]) -> None:
        self._name = name
        self._threads = threads
        self._call = call
        self.runs = 0

    @property
    def ran(self) -> str:
        return self._name if self.runs else ""

    @property
    def threads_used(self) -> int:
        """As many as it was told to use: peers do not tell."""
        return self._threads if self.runs else 0

    def run(self) -> None:
        self._call()
        self.runs += 1
