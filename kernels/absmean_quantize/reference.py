"""absmean_quantize in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey

CHUNK, CHUNKS, LANES = 4096, 1024, 16


def mean_magnitude(x: npt.NDArray[np.float32]) -> float:
    """The mean of |x| in float64, summed in the order of the contract."""
    length = CHUNK * -(-x.size // (CHUNK * CHUNKS))
    sums = np.zeros(CHUNKS)
    for chunk, start in enumerate(range(0, x.size, length)):
        part = np.abs(x[start : start + length])
        rows = np.zeros((-(-part.size // LANES), LANES))
        rows.reshape(-1)[: part.size] = part
        sums[chunk] = _pairwise(np.add.accumulate(rows, axis=0)[-1])
    return _pairwise(sums) / x.size


def _pairwise(terms: npt.NDArray[np.float64]) -> float:
    """The sum of 2**k terms: add terms at distance 2**(k - 1), then at distance 2**(k - 2), and so on."""
    while terms.size > 1:
        terms = terms[: terms.size // 2] + terms[terms.size // 2 :]
    return float(terms[0])


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """scale = float32(max(mean |x|, 1e-5)), codes = clamp(rint(x / scale), -1, 1). The contract is the float32
    quotient."""
    x = inputs["x"]
    scale = np.float32(max(mean_magnitude(x), 1e-5))
    with np.errstate(over="ignore", under="ignore"):
        quotient = x / scale
    return {"codes": np.clip(np.rint(quotient), -1, 1).astype(np.int8), "scale": np.asarray(scale)}
