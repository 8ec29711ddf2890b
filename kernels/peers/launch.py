"""Shared parts of the peers: a launch that calls third-party code, and float32 error bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.extras import install
from tritmark.harness.spec import Arrays, Axes
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.ternary_matmul.scales import weight_scales

UNIT = 2.0**-24
"""Unit roundoff of float32."""

LEAST = 2.0**-149
"""The least float32 above zero."""

_SLAB = 1 << 18
"""Weights that are widened at a time."""


def not_installed(extra: str = "peers") -> str:
    """Why a peer of that extra is missing."""
    return f"not installed: {install(extra)}"


@cache
def is_installed(package: str) -> bool:
    """Whether Python finds that top-level package; nothing is imported. Plans ask thousands of times."""
    from importlib.util import find_spec

    return find_spec(package) is not None


def gamma(n: int) -> float:
    """The largest relative error of `n` roundings in float32 (Higham, Accuracy and Stability, lemma 3.1)."""
    return n * UNIT / (1 - n * UNIT)


def times(left: npt.NDArray[np.float64], weights: npt.NDArray[np.int8], plus: int = 0) -> npt.NDArray[np.float64]:
    """left (M, K) times weights (N, K) + plus, transposed, in float64."""
    rows = max(1, _SLAB // weights.shape[1])
    found = np.empty((len(left), len(weights)))
    for n in range(0, len(weights), rows):
        np.matmul(left, (weights[n : n + rows].astype(np.float64) + plus).T, out=found[:, n : n + rows])
    return found


def scaled_times(
    left: npt.NDArray[np.float64],
    weights: npt.NDArray[np.int8],
    scales: npt.NDArray[np.float32],
    group: int,
    plus: int = 0,
) -> npt.NDArray[np.float64]:
    """left (M, K) times weights (N, K) + plus, each times its scale, transposed, in float64. `scales`: (N, groups), of
    `group` columns each, the last one of fewer."""
    rows, K = max(1, _SLAB // weights.shape[1]), weights.shape[1]
    found = np.empty((len(left), len(weights)))
    for n in range(0, len(weights), rows):
        part = weights[n : n + rows].astype(np.float64) + plus
        part *= np.repeat(scales[n : n + rows].astype(np.float64), group, axis=1)[:, :K]
        np.matmul(left, part.T, out=found[:, n : n + rows])
    return found


def wide_scales(format: str, inputs: Arrays, axes: Axes) -> npt.NDArray[np.float32]:
    """The value of code 1 of each weight, (N, K) or (N, 1): the scale of its group or row."""
    scales = weight_scales(inputs, axes, format)
    return np.repeat(scales.reshape(len(scales), -1), BUILT_IN[format].group or 1, axis=1)


def float_bound(format: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound of a sum of K float32 products in any order. Each product has three more roundings: the activation as a
    float, the weight times its scale, and the product. A denormal result loses the least number instead."""
    values = np.abs(inputs["activations"] / inputs["act_scale"].astype(np.float64)[:, np.newaxis])
    weights = np.abs(wide_scales(format, inputs, axes).astype(np.float64) * inputs["weights"])
    below = LEAST * (axes["K"] + weights.sum(axis=1)[np.newaxis, :] + values.sum(axis=1)[:, np.newaxis])
    return {"out": gamma(axes["K"] + 3) * (values @ weights.T) + below}


class PeerLaunch:
    """A call of a peer, counted."""

    pointer = None
    """The native clock cannot call it, so Python's clock times it."""
    bad = -1
    """Peers get only legal values and do not check them."""

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
        """The requested number of threads: peers do not report theirs."""
        return self._threads if self.runs else 0

    def run(self) -> None:
        self._call()
        self.runs += 1
