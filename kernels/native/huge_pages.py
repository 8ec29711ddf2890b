"""Memory for packed weights, adjacent in huge pages where the system has them.

A product of one row of activations reads every weight of a model once, so with pages of 4 KiB it also waits for address
translation. NumPy requests huge pages for arrays of 4 MiB or more, which most layers do not reach, and the ends of such
an array stay in small pages. Here weights are copied to the first free range in a slab of huge pages, in any order, and
several share a page. Pages and slabs return to the system with their last weights.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import weakref
from collections import deque
from contextlib import suppress
from ctypes import Array, addressof, c_uint8

import numpy as np
import numpy.typing as npt

from tritmark.harness.measure.buffers import ALIGNMENT, HUGE

SLAB_BYTES = 16 * HUGE
"""Address space that is reserved in one step; its pages take memory when weights are written to them."""
LEAST_BYTES = 1 << 16
"""Smaller weights are not copied: 16 small pages, which every TLB covers."""


_ADVICES = {"MADV_COLLAPSE": 25} if sys.platform == "linux" else {}
"""Advices of Linux that this Python has no names for."""


class Slab:
    """Huge pages and their free ranges. Not thread-safe; `HugePages` is."""

    def __init__(self, nbytes: int) -> None:
        self._mapping = mmap.mmap(-1, nbytes + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        at = addressof(c_uint8.from_buffer(self._mapping))
        self._begin, self._nbytes = -at % HUGE, nbytes
        self.address = at + self._begin
        # Without its ends, so that the kernel merges it with no other mapping, and reports its pages apart.
        self._advise("MADV_HUGEPAGE")
        self._free = [(0, nbytes)]

    def _advise(self, name: str) -> None:
        with suppress(OSError):  # a kernel without transparent huge pages, or they are off
            advice = getattr(mmap, name, _ADVICES.get(name))
            if advice is not None:
                self._mapping.madvise(advice, self._begin, self._nbytes)

    def collapse(self) -> None:
        """Have the system put what was written into huge pages now, as far as it can."""
        self._advise("MADV_COLLAPSE")

    @property
    def unused(self) -> bool:
        """Whether all of it is free."""
        return self._free == [(0, self._nbytes)]

    def take(self, nbytes: int) -> int | None:
        """Take `nbytes`, a multiple of ALIGNMENT, and return their offset; None if they do not fit."""
        for index, (begin, end) in enumerate(self._free):
            if end - begin >= nbytes:
                self._free[index : index + 1] = [(begin + nbytes, end)] if end - begin > nbytes else []
                return begin
        return None

    def bytes_at(self, begin: int, nbytes: int) -> Array[c_uint8]:
        """The bytes at an offset, as an object that keeps the slab alive."""
        return (c_uint8 * nbytes).from_buffer(self._mapping, self._begin + begin)

    def give_back(self, begin: int, nbytes: int) -> None:
        """Free a range. Pages without weights return to the system."""
        at = sum(other < begin for other, _ in self._free)
        end = begin + nbytes
        if at < len(self._free) and self._free[at][0] == end:
            end = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == begin:
            at -= 1
            begin = self._free.pop(at)[0]
        self._free.insert(at, (begin, end))
        first, last = -(-begin // HUGE) * HUGE, end // HUGE * HUGE
        if first < last:
            self._mapping.madvise(mmap.MADV_DONTNEED, self._begin + first, last - first)


def aligned(nbytes: int) -> int:
    """Bytes that a copy takes: whole cache lines."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class HugePages:
    """Slabs shared by the weights of all threads: each takes the first free range that holds it."""

    def __init__(self) -> None:
        self._slabs: list[Slab] = []
        self._dead: deque[tuple[Slab, int, int]] = deque()
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """Replace the lock: a thread that does not exist in the child may have held it."""
        self._lock = threading.Lock()

    def reserve(self, nbytes: int) -> Slab:
        """A slab of at least so many bytes for the next copies. Raises OSError if this process may not reserve it."""
        with self._lock:
            self._slabs.append(Slab(-(-nbytes // HUGE) * HUGE))
            return self._slabs[-1]

    def copied(self, values: npt.NDArray[np.uint8], least: int = LEAST_BYTES) -> npt.NDArray[np.uint8]:
        """A copy of `values`, uint8 of any shape, aligned to a cache line in huge pages; it is freed with its last
        view. Returns `values` if they have fewer than `least` bytes, and if this process may not reserve that much
        address space."""
        if values.nbytes < max(1, least):
            return values
        self._collect()
        nbytes = aligned(values.nbytes)
        try:
            with self._lock:
                slab, begin = self._taken(nbytes)
        except OSError:  # small pages give the same bits
            return values
        finally:
            self._collect()
        held = slab.bytes_at(begin, values.nbytes)
        weakref.finalize(held, self._died, slab, begin, nbytes).atexit = False
        made: npt.NDArray[np.uint8] = np.frombuffer(memoryview(held), np.uint8).reshape(values.shape)
        made[...] = values
        return made

    def _taken(self, nbytes: int) -> tuple[Slab, int]:
        for slab in self._slabs:
            begin = slab.take(nbytes)
            if begin is not None:
                return slab, begin
        slab = Slab(max(SLAB_BYTES, -(-nbytes // HUGE) * HUGE))
        begin = slab.take(nbytes)
        assert begin is not None
        self._slabs.append(slab)
        return slab, begin

    def _died(self, slab: Slab, begin: int, nbytes: int) -> None:
        self._dead.append((slab, begin, nbytes))
        self._collect()

    def _collect(self) -> None:
        """Free the ranges of dead weights. Weights may die at any moment, even within this thread's own call, so this
        never waits: the holder of the lock repeats it after its call."""
        while self._dead and self._lock.acquire(blocking=False):
            try:
                while self._dead:
                    slab, begin, nbytes = self._dead.popleft()
                    slab.give_back(begin, nbytes)
                    if slab.unused:
                        self._slabs.remove(slab)
            finally:
                self._lock.release()


HUGE_PAGES = HugePages()
os.register_at_fork(after_in_child=HUGE_PAGES.after_fork)
