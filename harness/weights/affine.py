"""Formats whose scales and offsets are separate tensors, as other projects' files store them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MLX_Q2 = "mlx_q2"
COMPRESSED_TENSORS_2 = "compressed_tensors_2"
ORT_Q2 = "ort_q2"
"""Names of the formats of the bytes, see tritmark.kernels.formats."""


def first_bias_of_other_codes(scales: NDArray[np.float32], biases: NDArray[Any]) -> tuple[int, ...] | None:
    """The index of the first bias of MLX that is not -scale, so that its group is not ternary; None without one."""
    differs = biases != -scales
    return tuple(int(i) for i in np.argwhere(differs)[0]) if differs.any() else None
