"""Bounds of the roundings of a part, derived from the dtypes of its arithmetic.

Outputs of operations are rounded to the model's dtype. Sums of products, norms, softmax and angles are float32. Source:
Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, chapter 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tritmark.torch.model.reference.tensors import Floats

FLOAT32 = 2.0**-24
ULP = 2 * FLOAT32
"""Relative size of a unit in the last place of float32: the error of functions (exp, pow, rsqrt) of math libraries,
which is at most 2 of them on CPUs (SLEEF) and GPUs (CUDA C programming guide, mathematical functions)."""
FUNCTION = 2 * ULP


def gamma(n: float, unit: float) -> float:
    """The relative error of n roundings in sequence."""
    return n * unit / (1 - n * unit) if n * unit < 1 else float("inf")


class Bounded(NamedTuple):
    """Exact values of a part, and how far roundings may move them."""

    values: Floats
    bound: Floats


@dataclass(frozen=True, slots=True)
class Rounding:
    """The arithmetic of a model."""

    u: float
    """Unit roundoff of its dtype."""
    tiny: float
    """The smallest positive number that is not flushed to 0: below it errors are absolute."""


@dataclass(frozen=True, slots=True)
class ProductArithmetic:
    """How a linear layer multiplies: relative errors of codes before they are rounded, of each term, and of the sum."""

    codes: float
    """Of x * scale before it is rounded to int8."""
    term: float
    total: float
    quantized: bool
