"""A kernel of unpack_codes for row16: weight e of 16 is the field w + 1 at shift 8 * (e % 4) + 2 * (e / 4) of a
word; rows of whole 64."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel


@kernel(op="unpack_codes", format="row16", dtype="int8", workspace="4 * K + 1024")
def unpack(packed: Any, codes: Any, scales: Any, N: int, K: int) -> None:
    """packed is uint8, with the scale in the first 4 of its last 64 bytes; codes is int8 (N, K), scales float32 (1,
    1)."""
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(4, 1)
    # A row at a time: temporary arrays count as memory.
    for row, words in enumerate(packed[:-64].reshape(N, -1, 1, 4)):
        fields = words >> shifts & 3
        codes[row] = fields.reshape(-1)[:K].view(np.int8) - 1
    scales.reshape(-1).view(np.uint8)[...] = packed[-64:-60]
