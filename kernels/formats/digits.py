"""Five base-3 digits in a byte, as ggml and ik_llama.cpp write them: the value v of the digits w + 1 as
ceil(v * 256 / 243), from which a multiplication by a power of 3 takes each digit."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError

_VALUES = 243
"""How many values five base-3 digits have."""


def _bytes_of_values() -> NDArray[np.uint8]:
    """For each value of five digits the byte, rounded up, whose fraction of 256 is the value's of 243; and libggml's
    for 243 to 255."""
    return ((np.arange(256) * 256 + _VALUES - 1) // _VALUES).astype(np.uint8)


def _codes_of_bytes() -> NDArray[np.int8]:
    """(5, 256): for each digit and byte the code, by libggml's way: the byte times 3^digit modulo 256, times 3, over
    256, less 1."""
    shifted = np.arange(256) * 3 ** np.arange(5)[:, np.newaxis] % 256
    return (shifted * 3 // 256 - 1).astype(np.int8)


BYTE = _bytes_of_values()
"""By value."""
CODE = _codes_of_bytes()
"""By digit, the most significant first, and byte."""


def written(values: Iterable[int]) -> NDArray[np.bool_]:
    """(256,): which bytes stand for one of these values."""
    return np.isin(np.arange(256), BYTE[list(values)])


def check_bytes(
    op: str, found: NDArray[np.uint8], legal: NDArray[np.bool_], count: int, *, block: int, at: int
) -> None:
    """Refuse bytes that `count` digits do not make: `found` (blocks, bytes) are those from byte `at` of the blocks from
    `block` on."""
    right = legal[found]
    if right.all():
        return
    row, column = (int(i) for i in np.argwhere(~right)[0])
    raise InvalidArgumentError(
        op=op,
        argument="packed",
        found=f"{found[row, column]} in byte {at + column} of block {block + row}",
        legal=f"one of the {3**count} bytes that {count} base-3 digits make",
    )
