"""A kernel of pack_codes for row16: weight e of 16 is the field w + 1 at shift 8 * (e % 4) + 2 * (e / 4) of a word;
rows of whole 64."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel


@kernel(op="pack_codes", format="row16", dtype="uint8", workspace="4 * K + 1024")
def pack(codes: Any, scales: Any, packed: Any, N: int, K: int) -> None:
    """codes is int8 (N, K), scales float32 (1, 1); packed is uint8, with the scale in the first 4 of its last 64
    bytes."""
    rows = packed[:-64].reshape(N, -1, 4)
    fields = np.ones(16 * rows.shape[1], np.uint8)
    four = fields.reshape(-1, 4, 4)  # word, shift 2 * this, byte
    # A row at a time: temporary arrays count as memory.
    for row, values in enumerate(codes):
        fields[:K] = values + 1
        rows[row] = four[:, 0] | four[:, 1] << 2 | four[:, 2] << 4 | four[:, 3] << 6
    packed[-64:] = 0
    packed[-64:-60] = scales.reshape(-1).view(np.uint8)
