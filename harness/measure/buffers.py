"""Buffers for measurements: with known alignment, and enough of them that each is cold when it is used again.

They are in the device's own memory if it has one, otherwise on the host in huge pages.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.machine import cpu
from tritmark.harness.machine import memory as main_memory
from tritmark.harness.spec import Device, Memory

ALIGNMENT = 64
"""Bytes on the host: a cache line, and the widest vector."""

DEVICE_ALIGNMENT = 256
"""Bytes in a device's own memory: the alignment of its allocator."""

HUGE = 1 << 21
"""Bytes of a huge page of x86-64, and of aarch64 with 4 KiB pages."""

_LEAST = 128 << 20
_DEVICE_LEAST = 256 << 20
_TIMES = 4
_SHARE = 8
_PIECE = 16 << 20
MOST_SETS = 1 << 14
"""The most sets: more take longer to bind than to measure."""


class HostMemory:
    """The host's main memory: NumPy arrays in private mappings, with huge pages if the kernel grants them."""

    @property
    def cache(self) -> int | None:
        """Bytes of the last-level cache; None if unknown."""
        return cpu.last_level()

    def available(self) -> int:
        """Bytes available without swapping."""
        return main_memory.available()

    def allocate(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """A zero-filled buffer, aligned to a huge page. It is freed with its last view."""
        mapping = mmap.mmap(-1, nbytes + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError, AttributeError):  # a kernel without transparent huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(mapping, np.uint8)
        start = -whole.ctypes.data % HUGE
        buffer = whole[start : start + nbytes]
        if nbytes > _PIECE:
            _spread(buffer, 0, mmap.PAGESIZE)
        return buffer

    def view(
        self,
        buffer: npt.NDArray[Any],
        offset: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        strides: tuple[int, ...] | None = None,
    ) -> npt.NDArray[Any]:
        """An array within the buffer."""
        return np.ndarray(shape, dtype, buffer=buffer, offset=offset, strides=strides)

    def write(self, array: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
        """Copy bytes into an array of the same size."""
        raw(array)[...] = raw(values)

    def read(self, array: npt.NDArray[Any], into: npt.NDArray[Any]) -> None:
        """Copy an array's bytes."""
        raw(into)[...] = raw(array)

    def watch(self) -> Uncounted:
        """Allocations on the host are not counted."""
        return Uncounted()


class Uncounted(AbstractContextManager["Uncounted"]):
    """A context manager for memory that does not count allocations."""

    peak: int | None = None
    held: int | None = None

    def __exit__(self, *problem: object) -> None:
        """Nothing to do."""


HOST = HostMemory()


def memory_of(device: Device) -> Memory:
    """The memory of the device's kernels: its own, or the host's."""
    return device.memory() if device.memory is not None else HOST


def alignment(memory: Memory) -> int:
    """The alignment of "aligned" arrays in bytes."""
    return ALIGNMENT if isinstance(memory, HostMemory) else DEVICE_ALIGNMENT


def raw(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8)


def fill(memory: Memory, array: Any, nbytes: int, byte: int) -> None:
    """Set every byte of a flat uint8 array of `nbytes` in that memory."""
    if memory is HOST:
        _spread(array[:nbytes], byte)
        return
    piece = np.full(min(nbytes, _PIECE), byte, np.uint8)
    for start in range(0, nbytes, _PIECE):
        part = piece[: min(_PIECE, nbytes - start)]
        memory.write(memory.view(array, start, part.shape, np.uint8), part)


def on_all_cores(work: Callable[[int], None], nbytes: int, piece: int) -> None:
    """Call `work` with each multiple of `piece` below `nbytes`, in threads: NumPy releases the GIL in loops over large
    arrays."""
    starts = range(0, nbytes, piece)
    if len(starts) < 2:
        for start in starts:
            work(start)
        return
    with ThreadPoolExecutor(len(cpu.affinity())) as pool:
        for _ in pool.map(work, starts):
            pass


def _spread(flat: npt.NDArray[np.uint8], byte: int, step: int = 1) -> None:
    """Set every `step`-th byte. Page faults take most of the time, hence the threads."""

    def write(start: int) -> None:
        flat[start : start + _PIECE : step] = byte

    on_all_cores(write, flat.nbytes, _PIECE)


@dataclass(frozen=True, slots=True)
class Rotation:
    """The bytes that one side of a comparison cycles through. The other side does the same, so twice as many bytes are
    touched."""

    nbytes: int
    wanted: int
    """The bytes that are enough to be cold. If memory is short, `nbytes` is less; cold figures are then too good and
    must be marked."""

    def sets_for(self, footprint: int) -> int | None:
        """The number of sets of `footprint` bytes that fill the rotation, at least 1; None if it exceeds MOST_SETS:
        such small sets cannot be cold."""
        sets = -(-self.nbytes // footprint)
        return sets if sets <= MOST_SETS else None


def rotation(memory: Memory = HOST) -> Rotation:
    """The rotation in that memory: 4 times the last-level cache per side, at least 128 MiB (256 MiB on a device), at
    most 1/8 of the free memory.

    A cache that resists thrashing keeps as much of a cycle as fits. Measured on a 32 MiB L3, relative to a cycle of 24
    times the cache: a read probe that cycles through 2, 4, 6, 8 times the cache runs at 136, 111, 99, 98 %; stores
    through the caches at 169, 121, 105, 102 %. Both sides together touch 8 times the cache.
    """
    wanted = max(_LEAST if memory is HOST else _DEVICE_LEAST, _TIMES * (memory.cache or 0))
    return Rotation(nbytes=min(wanted, memory.available() // _SHARE), wanted=wanted)


class Arena:
    """One buffer from which arrays are allocated in sequence. It is freed with its last array."""

    def __init__(self, nbytes: int, memory: Memory = HOST) -> None:
        self._memory = memory
        self._buffer = memory.allocate(nbytes)
        self._nbytes = nbytes
        self._taken = 0

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0) -> Any:
        """An array that begins `offset` elements past a multiple of the memory's alignment. Raises ValueError if the
        buffer is used up."""
        nbytes = prod(shape) * dtype.itemsize
        step = alignment(self._memory)
        start = -(-self._taken // step) * step + offset * dtype.itemsize
        if start + nbytes > self._nbytes:
            raise ValueError(f"{nbytes} bytes requested, {self._nbytes - self._taken} left")
        self._taken = start + nbytes
        return self._memory.view(self._buffer, start, shape, dtype)


def room_for(nbytes: int, dtype: np.dtype[Any], offset: int = 0, memory: Memory = HOST) -> int:
    """The most bytes that Arena.take uses for an array of `nbytes`."""
    return nbytes + offset * dtype.itemsize + alignment(memory)


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike, offset: int = 0) -> npt.NDArray[Any]:
    """A new zero-filled array on the host, in separate pages (huge ones if it is large enough), `offset` elements past
    a multiple of ALIGNMENT."""
    kind = np.dtype(dtype)
    made: npt.NDArray[Any] = Arena(room_for(prod(shape) * kind.itemsize, kind, offset)).take(shape, kind, offset)
    return made
