"""Mutants of absmean_quantize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.absmean_quantize.reference import mean_magnitude

Floats = npt.NDArray[np.float32]
_OP = "absmean_quantize"


def _codes(x: Floats, scale: Any) -> dict[str, Any]:
    scale = np.float32(scale)
    return {"codes": np.clip(np.rint(x / scale), -1, 1), "scale": scale}


def _mutant(name: str, scale: Callable[[Floats], Any]) -> Mutant:
    """Another scale, and the codes that follow from it."""
    return Mutant(op=_OP, name=name, compute=lambda inputs, axes, key: _codes(inputs["x"], scale(inputs["x"])))


def _rounded(name: str, codes: Callable[[Floats, np.float32], Any]) -> Mutant:
    """The correct scale, and other codes."""

    def compute(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
        scale = np.float32(max(mean_magnitude(inputs["x"]), 1e-5))
        return {"codes": codes(inputs["x"], scale), "scale": scale}

    return Mutant(op=_OP, name=name, compute=compute)


def _float32_mean(x: Floats) -> Any:
    return max(np.add.accumulate(np.abs(x))[-1] / np.float32(x.size), np.float32(1e-5))


def _without_the_last_chunk(x: Floats) -> Any:
    """The sum without the elements past the last whole chunk of 4096."""
    rest = float(np.abs(x[x.size // 4096 * 4096 :]).sum(dtype=np.float64))
    return max(mean_magnitude(x) - rest / x.size, 1e-5)


def _away(x: Floats) -> Floats:
    return np.trunc(x + np.copysign(np.float32(0.5), x))


MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    _mutant("mean of x, not of |x|", lambda x: max(abs(float(x.astype(np.float64).mean())), 1e-5)),
    _mutant("sum in float32", _float32_mean),
    _mutant("divided by n - 1", lambda x: max(mean_magnitude(x) * x.size / max(x.size - 1, 1), 1e-5)),
    _mutant("no least scale", lambda x: max(mean_magnitude(x), 1e-38)),
    _mutant("the least scale is 1e-8", lambda x: max(mean_magnitude(x), 1e-8)),
    _mutant("the largest in place of the mean", lambda x: max(float(np.abs(x).max()), 1e-5)),
    _mutant("the last chunk left out", _without_the_last_chunk),
    _rounded("ties rounded away from zero", lambda x, s: np.clip(_away(x / s), -1, 1)),
    _rounded("not clamped", lambda x, s: np.clip(np.rint(x / s), -128, 127)),
    _rounded("times the inverse of the scale", lambda x, s: np.clip(np.rint(x * (np.float32(1) / s)), -1, 1)),
    EquivalentMutants(op=_OP, mutant="output scale: sign of zero", reason="the scale is 1e-5 or more"),
)
