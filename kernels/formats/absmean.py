"""The weight rule of BitNet b1.58 as in its PyTorch code: the mean magnitude of the whole matrix."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tritmark.kernels.formats.base import Scale
from tritmark.kernels.formats.bits import slabs

_LEAST = np.float32(1e-5)


def absmean(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
    """Codes (N, K) of float32 weights (N, K), and the value of code 1.

    s = 1 / max(mean |x|, 1e-5), codes = clamp(round_half_even(x * s), -1, 1), value = code / s, all in float32. PyTorch
    does not define the order of the summation; here the mean is computed in float64 and rounded once. A NaN becomes 0.
    """
    codes = np.empty(x.shape, np.int8)
    with np.errstate(all="ignore"):  # a signalling NaN warns in a sum too
        sums = [float(np.abs(x[part]).sum(dtype=np.float64)) for part in slabs(len(x), x.shape[1] * x.itemsize)]
        total = math.fsum(sums)
        s = np.float32(1) / np.maximum(np.float32(total / x.size), _LEAST)
        for part in slabs(len(x), x.shape[1] * x.itemsize):
            rounded = np.rint(x[part] * s)
            rounded[np.isnan(rounded)] = 0
            codes[part] = np.clip(rounded, -1, 1)
        return codes, np.float32(1) / s
