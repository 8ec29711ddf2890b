"""What the peers share: a launch that calls somebody else's code, and float32's arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.ternary_matmul.scales import weight_scales

INSTALL = "not installed: pip install 'tritmark[peers]'"

UNIT = 2.0**-24
"""Unit roundoff of float32."""

LEAST = 2.0**-149
"""The least float32 above zero."""

_SLAB = 1 << 18
"""Weights that are widened at a time."""


def gamma(n: int) -> float:
    """The largest relative error that `n` roundings in float32 make together (Higham, Accuracy and Stability, lemma
    3.1)."""
    return n * UNIT / (1 - n * UNIT)


def times(left: npt.NDArray[np.float64], weights: npt.NDArray[np.int8], plus: int = 0) -> npt.NDArray[np.float64]:
    """left (M, K) times weights (N, K) + plus, transposed, in float64."""
    rows = max(1, _SLAB // weights.shape[1])
    found = np.empty((len(left), len(weights)))
    for n in range(0, len(weights), rows):
        np.matmul(left, (weights[n : n + rows].astype(np.float64) + plus).T, out=found[:, n : n + rows])
    return found


def wide_scales(format: str, inputs: Arrays, axes: Axes) -> npt.NDArray[np.float32]:
    """What code 1 of each weight stands for, (N, K) or (N, 1): the scale of its group or row."""
    scales = weight_scales(inputs, axes, format)
    return np.repeat(scales.reshape(len(scales), -1), BUILT_IN[format].group or 1, axis=1)


def float_bound(format: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """A sum of K products in float32, in any order, each with three roundings beside: of the activation as a float, of
    the weight times its scale, and of the product. Below the normal numbers each loses the least of them instead."""
    values = np.abs(inputs["activations"] / inputs["act_scale"].astype(np.float64)[:, np.newaxis])
    weights = np.abs(wide_scales(format, inputs, axes).astype(np.float64) * inputs["weights"])
    below = LEAST * (axes["K"] + weights.sum(axis=1)[np.newaxis, :] + values.sum(axis=1)[:, np.newaxis])
    return {"out": gamma(axes["K"] + 3) * (values @ weights.T) + below}


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
