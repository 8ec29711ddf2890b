"""Pack four ternary codes per byte, for all 2-bit layouts of this package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

ZERO_BYTE = 0x55
"""A byte with w = 0 (field 1) in all four fields."""

_SLAB_BYTES = 1 << 18


def slabs(count: int, bytes_each: int) -> Iterator[slice]:
    """Cut `count` units of `bytes_each` input bytes into slices of about 256 KiB, so that temporaries stay in the
    cache."""
    step = max(1, _SLAB_BYTES // max(1, bytes_each))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def join_fields(codes: Sequence[NDArray[np.int8]], out: NDArray[np.uint8]) -> None:
    """Write the fields w + 1 of four equally shaped int8 arrays of codes -1..1 into `out`; `codes[g]` goes to bits 2g
    and 2g+1.

    The sum of w * 4**g is computed modulo 256, and 0x55 adds one to each field at the end. This saves a pass per code.
    """
    w0, w1, w2, w3 = (w.view(np.uint8) for w in codes)
    np.left_shift(w3, 2, out=out)
    out += w2
    out <<= 2
    out += w1
    out <<= 2
    out += w0
    out += ZERO_BYTE


def split_fields(packed: NDArray[np.uint8], out: Sequence[NDArray[np.int8]]) -> None:
    """Undo `join_fields`: `out[g]` gets field g minus 1. The reserved field 3 becomes 2, which is no legal code."""
    for g, codes in enumerate(out):
        field = codes.view(np.uint8)
        np.right_shift(packed, 2 * g, out=field)
        field &= 3
        field -= 1
