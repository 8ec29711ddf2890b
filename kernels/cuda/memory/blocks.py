"""Blocks of device memory for the memory pool, and their sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tritmark.kernels.cuda.backend import Allocation

ALIGNMENT = 256
"""Alignment of every block's address in bytes (specification, 4.2)."""
STEPS = 256
"""Number of block sizes between a power of two and the next one."""


@dataclass(frozen=True, slots=True)
class Block:
    """A range of device memory."""

    pointer: int
    nbytes: int
    """Bytes of device memory that it occupies."""
    source: Any
    """The object that frees it."""


class BlockSource(Protocol):
    """A source of blocks. For one thread at a time, in which the device's context is current."""

    @property
    def active(self) -> int:
        """Bytes of the blocks in use."""

    @property
    def idle(self) -> int:
        """Bytes of the blocks that are kept for later requests."""

    @property
    def largest_idle(self) -> int:
        """Bytes of the largest kept block, 0 for none."""

    def size(self, nbytes: int) -> int:
        """Bytes of the block for a request of `nbytes`."""

    def take(self, nbytes: int) -> tuple[Block, bool]:
        """A block, and whether it was a kept one. Raises InsufficientMemoryError."""

    def give(self, block: Block) -> None:
        """Take a block back; the caller has waited for all work that uses it."""

    def release(self) -> None:
        """Return kept blocks to the device."""


class PlainBlocks:
    """Blocks of exactly the requested bytes, freed immediately. For the simulator, which then detects every access
    outside of a block."""

    idle = 0
    largest_idle = 0

    def __init__(self, allocate: Callable[[int], Allocation]) -> None:
        self._allocate = allocate
        self.active = 0

    def size(self, nbytes: int) -> int:
        """See BlockSource."""
        return nbytes

    def take(self, nbytes: int) -> tuple[Block, bool]:
        """See BlockSource."""
        source = self._allocate(nbytes)
        self.active += nbytes
        return Block(source.pointer, nbytes, source), False

    def give(self, block: Block) -> None:
        """See BlockSource."""
        self.active -= block.nbytes
        block.source.free()

    def release(self) -> None:
        """Does nothing; no block is kept."""


class KeptBlocks:
    """Blocks that are kept for later requests of the same size.

    Sizes are multiples of 256 bytes and of 1/256 of the power of two below them. Rounding costs less than 0.4 % for
    64 KiB or more, and nothing for a power of two. Kept bytes never exceed the peak use so far, or `spare` if that is
    more; beyond that, the blocks that were freed first return to the device.
    """

    def __init__(self, allocate: Callable[[int], Allocation], spare: int = 0) -> None:
        self._allocate = allocate
        self._kept: dict[int, list[Block]] = {}  # by size; most recently freed last
        self._limit = spare
        self.active = 0
        self.idle = 0

    @property
    def largest_idle(self) -> int:
        """See BlockSource."""
        return max(self._kept, default=0)

    def size(self, nbytes: int) -> int:
        """See BlockSource."""
        step = max(ALIGNMENT, (1 << nbytes.bit_length() - 1) // STEPS)
        return -(-nbytes // step) * step

    def take(self, nbytes: int) -> tuple[Block, bool]:
        """See BlockSource."""
        size = self.size(nbytes)
        kept = self._kept.get(size)
        if kept:
            block = kept.pop()
            if not kept:
                del self._kept[size]
            self.idle -= size
        else:
            source = self._allocate(size)
            block = Block(source.pointer, size, source)
        self.active += size
        self._limit = max(self._limit, self.active)
        return block, kept is not None

    def give(self, block: Block) -> None:
        """See BlockSource."""
        self.active -= block.nbytes
        self.idle += block.nbytes
        kept = self._kept.pop(block.nbytes, [])
        kept.append(block)
        self._kept[block.nbytes] = kept
        while self.idle > self._limit:
            self._drop()

    def release(self) -> None:
        """See BlockSource."""
        while self._kept:
            self._drop()

    def _drop(self) -> None:
        size, kept = next(iter(self._kept.items()))
        block = kept.pop(0)
        if not kept:
            del self._kept[size]
        self.idle -= size
        block.source.free()
