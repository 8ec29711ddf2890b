"""Five base-3 digits per byte, as in ggml and ik_llama.cpp: the value v of the digits w + 1 is stored as
ceil(v * 256 / 243). A multiplication by a power of 3 extracts each digit."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError

_VALUES = 243
"""Number of values of five base-3 digits."""


def _bytes_of_values() -> NDArray[np.uint8]:
    """The byte of each value v of five digits: v * 256 / 243, rounded up; for 243 to 255 libggml's byte."""
    return ((np.arange(256) * 256 + _VALUES - 1) // _VALUES).astype(np.uint8)


def _codes_of_bytes() -> NDArray[np.int8]:
    """(5, 256): the code of each digit and byte, computed as in libggml: byte times 3^digit modulo 256, times 3, over
    256, minus 1."""
    shifted = np.arange(256) * 3 ** np.arange(5)[:, np.newaxis] % 256
    return (shifted * 3 // 256 - 1).astype(np.int8)


BYTE = _bytes_of_values()
"""By value."""
CODE = _codes_of_bytes()
"""By digit, the most significant first, and byte."""


def written(values: Iterable[int]) -> NDArray[np.bool_]:
    """(256,): whether each byte encodes one of these values."""
    found = np.zeros(256, np.bool_)
    found[BYTE[list(values)]] = True
    return found


def check_bytes(
    op: str, found: NDArray[np.uint8], legal: NDArray[np.bool_], count: int, *, block: int, at: int
) -> None:
    """Raise InvalidArgumentError for bytes that `count` digits never produce. `found` (blocks, bytes) begins at byte
    `at` of the blocks and at block `block`."""
    right = legal[found]
    if right.all():
        return
    row, column = (int(i) for i in np.argwhere(~right)[0])
    raise InvalidArgumentError(
        op=op,
        argument="packed",
        found=f"{found[row, column]} in byte {at + column} of block {block + row}",
        legal=f"one of the {3**count} bytes that encode {count} base-3 digits",
    )
