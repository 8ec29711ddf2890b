"""Memory for packed weights: side by side in huge pages, where the system has them.

A product of one row of activations reads every weight of a model once, so in pages of 4 KiB it also waits for the
translation of addresses. NumPy asks for huge pages for arrays of 4 MiB and more, which most layers do not reach, and
the ends of such an array are in small pages all the same. Here the order in which weights are packed does not matter:
they are copied to the first room in a slab of huge pages, and several share a page. A page goes back to the system with
its last weights, and a slab too.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import deque
from contextlib import suppress
from ctypes import Array, addressof, c_uint8

import numpy as np
import numpy.typing as npt

from tritmark.harness.measure.buffers import ALIGNMENT, HUGE

SLAB_BYTES = 16 * HUGE
"""Address space that is taken at once; pages of it take memory when weights are written to them."""
LEAST_BYTES = 1 << 16
"""Smaller weights stay where they are: 16 small pages, which every TLB reaches."""


class Slab:
    """Huge pages with what of them is free. Not safe for several threads: `HugePages` is."""

    def __init__(self, nbytes: int) -> None:
        self._mapping = mmap.mmap(-1, nbytes + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError, AttributeError):  # a kernel without transparent huge pages
            self._mapping.madvise(mmap.MADV_HUGEPAGE)
        self._begin = -addressof(c_uint8.from_buffer(self._mapping)) % HUGE
        self._nbytes = nbytes
        self._free = [(0, nbytes)]

    @property
    def unused(self) -> bool:
        """Whether all of it is free."""
        return self._free == [(0, self._nbytes)]

    def take(self, nbytes: int) -> int | None:
        """Where so many bytes, a multiple of ALIGNMENT, are taken; None where they do not fit."""
        for index, (begin, end) in enumerate(self._free):
            if end - begin >= nbytes:
                self._free[index : index + 1] = [(begin + nbytes, end)] if end - begin > nbytes else []
                return begin
        return None

    def bytes_at(self, begin: int, nbytes: int) -> Array[c_uint8]:
        """The bytes there, as an object that keeps the slab."""
        return (c_uint8 * nbytes).from_buffer(self._mapping, self._begin + begin)

    def give_back(self, begin: int, nbytes: int) -> None:
        """Free what was taken there. Pages that are free now go back to the system."""
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


class HugePages:
    """Slabs that weights of all threads share: each takes the first room that holds it."""

    def __init__(self) -> None:
        self._slabs: list[Slab] = []
        self._dead: deque[tuple[Slab, int, int]] = deque()
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """A thread that is not in this process may have held the lock."""
        self._lock = threading.Lock()

    def copied(self, values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """A copy of `values`, uint8 of any shape, at the beginning of a cache line in huge pages; it goes back when the
        last view of it is gone. `values` themselves where they are smaller than LEAST_BYTES, and where this process may
        not take so much address space."""
        if values.nbytes < LEAST_BYTES:
            return values
        self._collect()
        nbytes = -(-values.nbytes // ALIGNMENT) * ALIGNMENT
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
        """Free what is dead. Weights may die at any moment, in the midst of this thread's own call too, so this never
        waits: the holder of the lock does it after its call."""
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
