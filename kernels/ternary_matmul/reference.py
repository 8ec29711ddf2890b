"""ternary_matmul in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey

_SLAB = 1 << 22
"""Weights that are widened at a time, so that the float64 copy stays at 32 MiB."""


def accumulate(activations: npt.NDArray[np.int8], codes: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """activations (M, K) times codes (N, K) transposed, as int64 (M, N).

    Computed in float64, where every partial sum is an integer under 2^53 and so exact; NumPy's integer product is 50 times slower.
    """
    wide = activations.astype(np.float64)
    rows = max(1, _SLAB // codes.shape[1])
    slabs = [wide @ codes[n : n + rows].astype(np.float64).T for n in range(0, codes.shape[0], rows)]
    return np.concatenate(slabs, axis=1).astype(np.int64)


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The int64 sums, or for float outputs those times weight_scale / act_scale in float64 (rounding is left to the judgement)."""
    acc = accumulate(inputs["activations"], inputs["weights"])
    if key.dtype == "int32":
        return {"out": acc}
    return {"out": acc * (np.float64(inputs["weight_scale"]) / inputs["act_scale"].astype(np.float64))[:, np.newaxis]}
