"""ternary_matmul in NumPy, and how far a product with a scale for each group of weights may be from it.

Notation: u = 2^-24 is the unit roundoff of float32, gamma(n) = n u / (1 - n u). The sum of a group's products, its
part, is exact in int32, and so the product is for weights with one scale, or one for each row, rounded once. With a
scale d[g] for each of n groups

    out = (d[1] part[1] + ... + d[n] part[n]) / act_scale

may be summed in float32, in any order: n - 1 additions, and three roundings on the way of a term, its product with the
scale and two for the division (by way of a reciprocal), so |error| <= gamma(n + 2) (|d[1] part[1]| + ... + |d[n]
part[n]|) / act_scale (Higham, "Accuracy and Stability of Numerical Algorithms", 4.2). Parts past 2^24 are rounded once
more. A product or quotient below the normal numbers loses half of the least number instead. An output of bfloat16 or
float16 is that sum rounded once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.matmul.reference import U_FLOAT32, U_FLOAT64, gamma
from tritmark.kernels.ternary_matmul.scales import grouped, weight_scales

Floats = npt.NDArray[np.float64]
Sums = Callable[[npt.NDArray[np.int8], npt.NDArray[np.int8]], npt.NDArray[np.int64]]

_SLAB = 1 << 18
"""Weights that are widened at a time, so that their copy stays at 2 MiB."""
_EXACT = 1 << 24
"""Up to here float32 holds every integer."""
_SHORT = _EXACT >> 9
"""Products of an int8 and a code, which is under 4, whose sum is within _EXACT however they are added."""
_HALF_LEAST = 2.0**-150
"""Half of float32's least number."""

PRECISION = {"bfloat16": (8, -125), "float16": (11, -13)}
"""Of outputs of 16 bits: digits, and the exponent of the least normal number, whose fraction is under 1."""


def accumulate(activations: npt.NDArray[np.int8], codes: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """activations (M, K) times codes (N, K) transposed, as int64 (M, N).

    Computed in float32 or, of more than _SHORT columns, in float64, where every partial sum is an integer under 2^24 or
    2^53 and so exact; NumPy's integer product is 50 times slower.
    """
    dtype: type[np.floating[Any]] = np.float32 if codes.shape[1] <= _SHORT else np.float64
    wide = activations.astype(dtype)
    rows = max(1, _SLAB // codes.shape[1])
    sums = np.empty((len(activations), len(codes)), np.int64)
    for n in range(0, len(codes), rows):
        sums[:, n : n + rows] = wide @ codes[n : n + rows].astype(dtype).T
    return sums


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The int64 sums, or for float outputs those times weight scale / act_scale in float64 (rounding is left to the
    judgement); with a scale for each group of weights also `out.bound`."""
    return product(inputs, axes, key, accumulate)


def product(inputs: Arrays, axes: Axes, key: KernelKey, sums: Sums) -> dict[str, Any]:
    """The outputs where `sums(activations, codes)` gives the sums of columns that share a scale."""
    activations, codes = inputs["activations"], inputs["weights"]
    if key.dtype == "int32":
        return {"out": sums(activations, codes)}
    act_scale = inputs["act_scale"].astype(np.float64)[:, np.newaxis]
    scales = weight_scales(inputs, axes, key.weight_format).astype(np.float64)
    form = grouped(key.weight_format)
    if form is None:
        return {"out": sums(activations, codes) * (scales / act_scale)}
    total, magnitudes = np.zeros((axes["M"], axes["N"])), np.zeros((axes["M"], axes["N"]))
    for g, start in enumerate(range(0, axes["K"], form.group)):
        columns = slice(start, start + form.group)
        term = sums(activations[:, columns], codes[:, columns]) * scales[:, g]
        total += term
        magnitudes += np.abs(term)
    exact = total / act_scale
    return {
        "out": exact,
        "out.bound": _bound(exact, magnitudes, act_scale, axes["K"] // form.group, form.group, key.dtype),
    }


def _bound(exact: Floats, magnitudes: Floats, act_scale: Floats, groups: int, group: int, dtype: str) -> Floats:
    """The largest error of a kernel's output, against the float64 sum `exact`, whose own roundings it covers."""
    roundings = groups + 2 + (128 * group > _EXACT)
    own = gamma(groups + 1, U_FLOAT64)
    bound: Floats = (gamma(roundings, U_FLOAT32) + own) * magnitudes / act_scale / (1 - own) + _HALF_LEAST * (
        groups / act_scale + 2
    )
    if dtype in PRECISION:
        bound += half_unit(np.abs(exact) + bound, dtype)
    return bound


def half_unit(values: Floats, dtype: str) -> Floats:
    """Half of a unit of the last place of numbers of that size, in bfloat16 or float16."""
    digits, least = PRECISION[dtype]
    _, exponents = np.frexp(values)
    half: Floats = np.ldexp(1.0, np.maximum(exponents, least) - digits - 1)
    return half
