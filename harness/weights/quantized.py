"""What quantizing floats loses: the error is measured wherever it is done, and said."""

from __future__ import annotations

from dataclasses import dataclass
from math import log10

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.weights.finite import slabs

RULES = ("absmean",)
"""Names of the rules that may be asked for: that of Provider.ternarize."""

_DIGITS = {"float32": 24, "float16": 11, "bfloat16": 8, "float64": 24}
"""Bits of a significand; float64 is read as float32."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Of one matrix, or of several together."""

    signal: float
    noise: float
    near_ties: int
    """Codes that another rounding of the stored number by one unit in its last place could change."""
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
        """Signal over noise in decibel; None where there is no noise."""
        if not self.noise:
            return None
        return 10 * log10(self.signal / self.noise) if self.signal else -np.inf

    def __str__(self) -> str:
        snr = "no error" if self.snr_db is None else f"SNR {self.snr_db:.1f} dB"
        return f"{snr}, {self.near_ties / max(self.elements, 1):.2%} of the codes within rounding of a tie"


NOTHING = Loss(0.0, 0.0, 0, 0)


def loss(weights: NDArray[np.float32], codes: NDArray[np.int8], scale: np.float32, dtype: str) -> Loss:
    """What codes times one scale lose of float32 weights (N, K) that were stored as `dtype`."""
    signal, noise = 0.0, 0.0
    for rows in slabs(weights.shape):
        exact = weights[rows].astype(np.float64)
        signal += float((exact**2).sum())
        noise += float(((exact - codes[rows] * np.float64(scale)) ** 2).sum())
    return Loss(signal, noise, near_ties(weights, scale, dtype), weights.size)


def near_ties(weights: NDArray[np.float32], scale: np.float32, dtype: str) -> int:
    """Codes of weights, stored as `dtype`, that another rounding by one unit in the last place could change: those
    within that of half the scale, the tie between 0 and 1. Past 1 codes are clamped, so there is no other tie."""
    half = float(scale) / 2
    unit = half * 2.0 ** (1 - _DIGITS.get(dtype, _DIGITS["float32"]))
    return sum(
        int((np.abs(np.abs(weights[rows].astype(np.float64)) - half) <= unit).sum()) for rows in slabs(weights.shape)
    )
