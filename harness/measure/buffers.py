"""Buffers to measure on: huge pages, known alignment, and enough of them that one is cold again when its turn comes."""

from __future__ import annotations

import mmap
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.machine import cpu, memory

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""

HUGE = 1 << 21
"""Bytes of a huge page of x86-64, and of aarch64 with 4 KiB pages."""

_LEAST = 128 << 20
_TIMES = 4
_SHARE = 8
MOST_SETS = 1 << 14
"""More sets than this cost more time to bind than to measure."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """How many bytes one side of a comparison cycles through. The other side does the same in between, so twice that is touched."""

    nbytes: int
    wanted: int
    """What would be enough. More than `nbytes` where memory is short: then cold figures are too good, and have to say so."""

    def sets_for(self, footprint: int) -> int | None:
        """How many sets of `footprint` bytes fill the rotation, at least 1; None if more than MOST_SETS: nothing so small gets cold."""
        sets = -(-self.nbytes // footprint)
        return sets if sets <= MOST_SETS else None


def rotation() -> Rotation:
    """The rotation on this machine: 4 times the last-level cache for either side, at least 128 MiB, at most an eighth of the free memory.

    A cache that resists thrashing keeps as much of a cycle as fits into it. Measured on a 32 MiB L3: a read probe that cycles through
    2, 4, 6, 8 times the cache runs at 136, 111, 99, 98 % of its rate over 24 times; stores that are not written around the caches at
    169, 121, 105, 102 %. Both sides together touch 8 times the cache.
    """
    wanted = max(_LEAST, _TIMES * (cpu.last_level() or 0))
    return Rotation(nbytes=min(wanted, memory.available() // _SHARE), wanted=wanted)


class Arena:
    """A private mapping in huge pages where the kernel grants them, from which arrays are taken one after the other.

    Its memory goes back when the last array of it is gone.
    """

    def __init__(self, nbytes: int) -> None:
        mapping = mmap.mmap(-1, nbytes + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError, AttributeError):  # a kernel without transparent huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(mapping, np.uint8)
        start = -whole.ctypes.data % HUGE
        self._bytes = whole[start : start + nbytes]
        self._taken = 0

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0) -> npt.NDArray[Any]:
        """An array that begins `offset` elements past a multiple of ALIGNMENT. Raises ValueError where the arena is used up."""
        nbytes = prod(shape) * dtype.itemsize
        start = -(-self._taken // ALIGNMENT) * ALIGNMENT + offset * dtype.itemsize
        if start + nbytes > self._bytes.nbytes:
            raise ValueError(f"{nbytes} bytes asked for, {self._bytes.nbytes - self._taken} left")
        self._taken = start + nbytes
        return self._bytes[start : start + nbytes].view(dtype).reshape(shape)


def room_for(nbytes: int, dtype: np.dtype[Any], offset: int = 0) -> int:
    """Most bytes that Arena.take uses up for an array of `nbytes`."""
    return nbytes + offset * dtype.itemsize + ALIGNMENT


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike, offset: int = 0) -> npt.NDArray[Any]:
    """A new zero-filled array in pages of its own (huge ones if it is large enough), `offset` elements past a multiple of ALIGNMENT."""
    kind = np.dtype(dtype)
    return Arena(room_for(prod(shape) * kind.itemsize, kind, offset)).take(shape, kind, offset)
