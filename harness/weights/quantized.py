"""Measure the error of quantizing floats."""

from __future__ import annotations

from dataclasses import dataclass
from math import log10

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.weights.finite import slabs

RULES = ("absmean",)
"""Names of the rules that a user may request: the rule of Provider.ternarize."""

_DIGITS = {"float32": 24, "float16": 11, "bfloat16": 8, "float64": 24}
"""Bits of the significand; float64 is read as float32."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of one matrix, or of several together."""

    signal: float
    noise: float
    near_ties: int
    """Codes that could change if the stored number were rounded differently by one unit in its last place."""
    elements: int

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            self.signal + other.signal,
            self.noise + other.noise,
            self.near_ties + other.near_ties,
            self.elements + other.elements,
        )

    @property
    def snr_db(self) -> float | None:
        """Signal-to-noise ratio in decibels; None without noise."""
        if not self.noise:
            return None
        return 10 * log10(self.signal / self.noise) if self.signal else -np.inf

    def __str__(self) -> str:
        snr = "no error" if self.snr_db is None else f"SNR {self.snr_db:.1f} dB"
        return f"{snr}, {self.near_ties / max(self.elements, 1):.2%} of the codes within rounding of a tie"


NOTHING = Loss(0.0, 0.0, 0, 0)


def loss(weights: NDArray[np.float32], codes: NDArray[np.int8], scale: np.float32, dtype: str) -> Loss:
    """The loss of codes times one scale against float32 weights (N, K) that were stored as `dtype`."""
    signal, noise = 0.0, 0.0
    for rows in slabs(weights.shape):
        exact = weights[rows].astype(np.float64)
        signal += float((exact**2).sum())
        noise += float(((exact - codes[rows] * np.float64(scale)) ** 2).sum())
    return Loss(signal, noise, near_ties(weights, scale, dtype), weights.size)


def near_ties(weights: NDArray[np.float32], scale: np.float32, dtype: str) -> int:
    """Count the codes that could change if a weight, stored as `dtype`, were rounded differently by one unit in the
    last place: those so close to half the scale, the tie between 0 and 1. Codes past 1 are clamped: no other tie."""
    half = float(scale) / 2
    unit = half * 2.0 ** (1 - _DIGITS.get(dtype, _DIGITS["float32"]))
    return sum(
        int((np.abs(np.abs(weights[rows].astype(np.float64)) - half) <= unit).sum()) for rows in slabs(weights.shape)
    )
