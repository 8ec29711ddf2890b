"""Ways to compute i2s_quantize wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, Fault, Harmless, KernelKey

Floats = npt.NDArray[np.float32]


def _by(q: Callable[[Floats, np.float32], npt.NDArray[Any]]) -> Callable[[Arrays, Axes, KernelKey], dict[str, Any]]:
    return lambda inputs, axes, key: {"q": q(inputs["x"], np.float32(inputs["scale"]))}


def _away(x: Floats) -> Floats:
    return np.trunc(x + np.copysign(np.float32(0.5), x))


def _fault(name: str, q: Callable[[Floats, np.float32], npt.NDArray[Any]]) -> Fault:
    return Fault(op="i2s_quantize", name=name, compute=_by(q))


FAULTS: tuple[Fault | Harmless, ...] = (
    _fault("ties rounded away from zero", lambda x, s: _away(np.clip(x / s, -2, 1))),
    _fault("rounded down", lambda x, s: np.floor(np.clip(x / s, -2, 1))),
    _fault("rounded towards zero", lambda x, s: np.trunc(np.clip(x / s, -2, 1))),
    _fault("times the inverse of the scale", lambda x, s: np.rint(np.clip(x * (np.float32(1) / s), -2, 1))),
    _fault("clamped at -1", lambda x, s: np.rint(np.clip(x / s, -1, 1))),
    _fault("clamped at 2", lambda x, s: np.rint(np.clip(x / s, -2, 2))),
    _fault("not clamped", lambda x, s: np.clip(np.rint(x / s), -128, 127)),
    _fault("denormals taken for zero", lambda x, s: np.rint(np.clip(np.where(np.abs(x) < np.finfo(np.float32).tiny, 0, x) / s, -2, 1))),
)
