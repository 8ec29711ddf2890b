"""Blocks of a GPU's memory: small ones from PyCUDA's DeviceMemoryPool, large ones from KeptBlocks."""

from __future__ import annotations

import atexit
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tritmark.harness.errors import DeviceError, InsufficientMemoryError
from tritmark.kernels.cuda.memory.blocks import ALIGNMENT, Block, KeptBlocks

if TYPE_CHECKING:
    from tritmark.kernels.cuda.driver.driver import DriverBackend

SMALL = 1 << 16
"""Blocks below so many bytes come from PyCUDA's pool.

It has 16 sizes between a power of two and the next, each one byte below the next size (`bin_number` and `alloc_size` in
its mempool.hpp). A request of 2^30 bytes takes 2^30 + 2^26 - 1, 6.25 % too much. Below 64 KiB this wastes at most
2 KiB; larger sizes are rounded by less than 0.4 % in KeptBlocks.
"""
SPARE = 8
"""This part (1/SPARE) of device memory may be idle in large blocks, so that arrays that alternate need no new
allocation each time."""


class PyCudaBlocks:
    """See Blocks; any thread may call it."""

    def __init__(self, backend: DriverBackend) -> None:
        from pycuda.driver import Error
        from pycuda.driver import MemoryError as OutOfMemory
        from pycuda.tools import DeviceMemoryPool

        self._backend = backend
        self._error, self._out_of_memory = Error, OutOfMemory
        with backend:
            self._small = DeviceMemoryPool()
        self._large = KeptBlocks(backend.allocate, backend.info.memory // SPARE)
        self._small_idle: Counter[int] = Counter()  # by size; PyCUDA's pool reports only their number
        self._lost: list[Any] = []  # blocks lost with the context
        atexit.register(self._stop)  # registered after the backend's, so it runs first

    @property
    def active(self) -> int:
        """See Blocks."""
        return int(self._small.active_bytes) + self._large.active

    @property
    def idle(self) -> int:
        """See Blocks."""
        return int(self._small.managed_bytes - self._small.active_bytes) + self._large.idle

    @property
    def largest_idle(self) -> int:
        """See Blocks."""
        return max(self._large.largest_idle, *(size for size, count in self._small_idle.items() if count), 0)

    def size(self, nbytes: int) -> int:
        """See Blocks."""
        rounded = -(-nbytes // ALIGNMENT) * ALIGNMENT
        return (
            self._large.size(nbytes)
            if rounded >= SMALL
            else int(self._small.alloc_size(self._small.bin_number(rounded)))
        )

    def take(self, nbytes: int) -> tuple[Block, bool]:
        """See Blocks."""
        size = self.size(nbytes)
        if size >= SMALL:
            return self._large.take(nbytes)
        hit = self._small_idle[size] > 0
        with self._backend:
            try:
                source = self._small.allocate(size)  # all of the block, so that its active_bytes counts what is taken
            except self._out_of_memory:
                self._small_idle.clear()  # the pool has freed all its idle blocks
                raise InsufficientMemoryError(
                    what="a block",
                    required=size,
                    available=self._backend.memory()[0],
                    next_step="free arrays on the device",
                ) from None
            if hit:
                self._small_idle[size] -= 1
            # Memory was short, and the pool has freed some of its idle blocks.
            if self._small.held_blocks != self._small_idle.total():
                self._small.free_held()
                self._small_idle.clear()
        return Block(int(source), size, source), hit

    def give(self, block: Block) -> None:
        """See Blocks."""
        if block.nbytes >= SMALL:
            self._large.give(block)
            return
        try:
            with self._backend:
                block.source.free()
                self._small_idle[block.nbytes] += 1
        except DeviceError:
            self._lost.append(block.source)

    def release(self) -> None:
        """See Blocks."""
        with self._backend:
            self._small.free_held()
        self._small_idle.clear()
        self._large.release()

    def _stop(self) -> None:
        """At exit, while there is a context: make PyCUDA's pool keep no more blocks.

        The pool needs a current context to keep a block, and without one it would end the process. If the context is
        lost, nothing can be freed, and PyCUDA would warn about each block, so they are taken out of its pool first.
        """
        with suppress(DeviceError), self._backend:
            self._small.stop_holding()
            return
        with suppress(self._error):
            self._lost += [self._small.allocate(size) for size in self._small_idle.elements()]
            self._small.stop_holding()
