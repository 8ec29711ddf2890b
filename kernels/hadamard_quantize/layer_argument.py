"""The argument `hadamard` of layers whose weights are stored as W * S * H."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.hadamard_quantize.spec import BLOCKS

ARGUMENT = "hadamard"


def check_block(op: str, block: Any, K: int) -> int:
    """The block of a layer with K columns. Raises InvalidArgumentError for one that no kernel has or that does not
    divide K."""
    if isinstance(block, bool) or not isinstance(block, int | np.integer) or block not in BLOCKS or K % block:
        legal = f"{', '.join(map(str, BLOCKS[:-1]))} or {BLOCKS[-1]}, a divisor of in_features, {K}"
        raise InvalidArgumentError(op=op, argument=ARGUMENT, found=f"a block of {block!r}", legal=legal)
    return int(block)
