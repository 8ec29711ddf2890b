"""What launches of products share."""

from __future__ import annotations

import numpy as np

from tritmark.kernels.cuda.kernel import OVERLAPPING
from tritmark.kernels.cuda.launch.launch import Call

WARP = 32


def tiles_of(tile: tuple[int, int], M: int, N: int) -> int:
    """The number of tiles (rows of activations, rows of weights) of a product."""
    return -(-M // tile[0]) * -(-N // tile[1])


def constant(call: Call) -> np.int32:
    """Whether the weights may be read before the previous launch has finished, as an int32 argument."""
    return np.int32(call.inputs["weights"].constant)


def reads_early(call: Call) -> bool:
    """Whether the weights are read before the previous launch has finished: if they are constant and launches
    overlap."""
    return bool(constant(call)) and call.info.capability >= OVERLAPPING
