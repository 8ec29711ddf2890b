"""Mutants of i2s_dequantize."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.i2s_dequantize.reference import reference


def _two_bits(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Only the two low bits, as two's complement."""
    return reference({**inputs, "q": ((inputs["q"] + 2) & 3) - 2}, axes, key)


def _divided(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    return {"x": inputs["q"] / np.float64(inputs["scale"])}


MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    Mutant(op="i2s_dequantize", name="two bits of a code read", compute=_two_bits),
    Mutant(op="i2s_dequantize", name="divided by the scale", compute=_divided),
)
