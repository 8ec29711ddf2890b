"""The computation of the kernels over tile64 with a scale for each group, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

GROUPS = {f"tile64_g{group}": group for group in (32, 64, 128, 256)}
"""The formats, and weights of a row that share a scale."""


def grouped_model(
    activations: NDArray[np.int8], codes: NDArray[np.int8], scales: NDArray[np.float32], act_scale: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The float32 outputs, to the bit: in the order of the groups, each exact sum times its scale, rounded, is added in
    float32. The total is multiplied in float64 and rounded."""
    groups = scales.shape[1]
    group = codes.shape[1] // groups
    total: NDArray[Any] = np.zeros((len(activations), len(codes)), np.float32)
    with np.errstate(all="ignore"):
        for g in range(groups):
            columns = slice(group * g, group * (g + 1))
            parts = activations[:, columns].astype(np.float64) @ codes[:, columns].astype(np.float64).T
            total = total + scales[:, g] * parts.astype(np.float32)
        return (total.astype(np.float64) * (1 / act_scale.astype(np.float64))[:, np.newaxis]).astype(np.float32)
