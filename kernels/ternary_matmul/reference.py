"""ternary_matmul in NumPy, and the error bound of products with a scale for each group of weights.

Notation: u = 2^-24 is the unit roundoff of float32, gamma(n) = n u / (1 - n u). The sum of a group's products, its
part, is exact in int32. With one scale, or one for each row, the product is therefore rounded only once. With a scale
d[g] for each of n groups

    out = (d[1] part[1] + ... + d[n] part[n]) / act_scale

may be summed in float32, in any order. That is n - 1 additions, and three roundings of each term: its product with the
scale, and two for the division (by a reciprocal). So |error| <= gamma(n + 2) (|d[1] part[1]| + ... + |d[n] part[n]|) /
act_scale (Higham, "Accuracy and Stability of Numerical Algorithms", 4.2). Parts above 2^24 are rounded once more. A
denormal product or quotient loses half of the least number instead. A bfloat16 or float16 output is that sum rounded
once more.
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
"""Weights that are widened at a time: their copy takes 2 MiB."""
_EXACT = 1 << 24
"""float32 holds every integer up to this one."""
_SHORT = _EXACT >> 9
"""The most products of an int8 and a code (below 4) with a sum within _EXACT in any order."""
_HALF_LEAST = 2.0**-150
"""Half of float32's least number."""

PRECISION = {"bfloat16": (8, -125), "float16": (11, -13)}
"""For 16-bit outputs: digits, and the exponent of the least normal number with its fraction below 1."""


def accumulate(activations: npt.NDArray[np.int8], codes: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """activations (M, K) times codes (N, K) transposed, as int64 (M, N).

    Computed in float32, or in float64 for more than _SHORT columns. Every partial sum is an integer below 2^24 or 2^53
    and so exact; NumPy's integer product is 50 times slower.
    """
    dtype: type[np.floating[Any]] = np.float32 if codes.shape[1] <= _SHORT else np.float64
    wide = activations.astype(dtype)
    rows = max(1, _SLAB // codes.shape[1])
    sums = np.empty((len(activations), len(codes)), np.int64)
    for n in range(0, len(codes), rows):
        sums[:, n : n + rows] = wide @ codes[n : n + rows].astype(dtype).T
    return sums


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The int64 sums; for float outputs, those times weight scale / act_scale in float64 (the judgement rounds them).
    With a scale for each group of weights also `out.bound`."""
    return product(inputs, axes, key, accumulate)


def product(inputs: Arrays, axes: Axes, key: KernelKey, sums: Sums) -> dict[str, Any]:
    """The outputs, with `sums(activations, codes)` as the sums of columns that share a scale."""
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
    """The largest error of a kernel's output against the float64 sum `exact`; covers the roundings of `exact` too."""
    roundings = groups + 2 + (128 * group > _EXACT)
    own = gamma(groups + 1, U_FLOAT64)
    bound: Floats = (gamma(roundings, U_FLOAT32) + own) * magnitudes / act_scale / (1 - own) + _HALF_LEAST * (
        groups / act_scale + 2
    )
    if dtype in PRECISION:
        bound += half_unit(np.abs(exact) + bound, dtype)
    return bound


def half_unit(values: Floats, dtype: str) -> Floats:
    """Half a unit in the last place of these values, in bfloat16 or float16."""
    digits, least = PRECISION[dtype]
    _, exponents = np.frexp(values)
    half: Floats = np.ldexp(1.0, np.maximum(exponents, least) - digits - 1)
    return half
