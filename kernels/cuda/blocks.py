"""Blocks of device memory: what the memory pool hands out, and where it gets it from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tritmark.kernels.cuda.backend import Allocation

ALIGNMENT = 256
"""Bytes that every block's address is a multiple of (specification, 4.2)."""
STEPS = 256
"""Sizes of blocks between a power of two and the next one."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of device memory."""

    pointer: int
    nbytes: int
    """What it takes of the device's memory."""
    source: Any
    """What gives it back."""


class BlockSource(Protocol):
    """Where blocks come from. One thread at a time, and one that the device's context is current in."""

    @property
    def active(self) -> int:
        """Bytes of the blocks that were taken and not given back."""

    @property
    def idle(self) -> int:
        """Bytes of the blocks that are kept for the next request."""

    @property
    def largest_idle(self) -> int:
        """Bytes of the largest of them, 0 for none."""

    def size(self, nbytes: int) -> int:
        """Bytes of the block that a request of `nbytes` gets."""

    def take(self, nbytes: int) -> tuple[Block, bool]:
        """A block, and whether it was kept from before. Raises InsufficientMemoryError."""

    def give(self, block: Block) -> None:
        """Take a block back; the caller has waited for the work that uses it."""

    def release(self) -> None:
        """Give what is idle back to the device."""


class PlainBlocks:
    """Blocks of exactly the bytes asked for, given back at once: the simulator's, which then finds every access
    beside or after them."""

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
        """Nothing is idle."""


class KeptBlocks:
    """Blocks that are kept and serve the next request of the same size.

    Sizes are multiples of 256 bytes and of a 256th of the power of two below them, so that rounding costs less than 0.4
    % from 64 KiB on, and nothing for a power of two. What is idle never exceeds the most that was ever in use at a
    time, or `spare` bytes if that is more: beyond that, what was given back longest ago goes back to the device.
    """

    def __init__(self, allocate: Callable[[int], Allocation], spare: int = 0) -> None:
        self._allocate = allocate
        self._kept: dict[int, list[Block]] = {}  # by size; what was given back last is at the end
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
