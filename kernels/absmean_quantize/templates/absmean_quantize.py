"""A kernel of absmean_quantize: scale = max(mean |x|, 1e-5), codes = clamp(rint(x / scale), -1, 1).

The mean is a float64 sum in the order of the contract: chunks of 4096 * ceil(n / 2**22) values, 16 lanes in each, the
lanes added pairwise, then the sums of 1024 chunks pairwise.
"""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel

PIECE = 4096
"""Elements at a time: temporary arrays count as memory."""


def _folded(terms: Any) -> Any:
    """Sums of rows of 2**k terms, pairwise: terms at distance 2**(k - 1) first."""
    while terms.shape[-1] > 1:
        middle = terms.shape[-1] // 2
        terms = terms[..., :middle] + terms[..., middle:]
    return terms[..., 0]


@kernel(op="absmean_quantize", dtype="int8", workspace="64 * 4096")
def quantize(x: Any, codes: Any, scale: Any, n: int) -> None:
    """x is float32 (n,), codes int8 (n,), scale float32 ()."""
    chunk = 4096 * -(-n // (1 << 22))
    with np.errstate(all="ignore"):
        sums = np.zeros(1024)
        for place, begin in enumerate(range(0, n, chunk)):
            lanes = np.zeros(16)
            for start in range(begin, min(begin + chunk, n), PIECE):
                values = np.abs(x[start : min(start + PIECE, begin + chunk)])
                # Each lane adds in order, beginning with its previous sum: accumulate does that, sum does not.
                rows = np.zeros((1 + -(-len(values) // 16), 16))
                rows[0] = lanes
                rows[1:].reshape(-1)[: len(values)] = values
                lanes = np.add.accumulate(rows, axis=0)[-1]
            sums[place] = _folded(lanes)
        scale[...] = max(float(_folded(sums)) / n, 1e-5)
        for begin in range(0, n, PIECE):
            codes[begin : begin + PIECE] = np.clip(np.rint(x[begin : begin + PIECE] / scale), -1, 1)
