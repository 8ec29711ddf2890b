"""The device's memory: a pool that knows what it handed out, where and when, and says before work whether there is
enough.

Memory goes back when the last array over it is gone or when it is freed, and serves the next request at once. Who puts
work into a stream keeps its arrays until that work is complete, as CudaLaunch.run, Batch and Transfers do.
"""

from __future__ import annotations

import math
import os
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import dtype_of
from tritmark.harness.errors import DeviceError, FreedMemoryError, InsufficientMemoryError
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.backend import Backend
from tritmark.kernels.cuda.blocks import ALIGNMENT, Block, BlockSource, PlainBlocks
from tritmark.kernels.cuda.stats import CountedCopies, PerformanceStats

_HERE = os.path.dirname(__file__) + os.sep
_NEXT = "free arrays on the device, end other processes that use it, or take the work in smaller pieces"


class Allocated(NamedTuple):
    """An allocation: what it is for, where it was made, when."""

    serial: int
    """Its number among all that the pool made, from 1."""
    nbytes: int
    """As asked for."""
    taken: int
    """Bytes of the device's memory that it takes."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    label: str
    file: str
    line: int
    """Of the caller outside this folder."""
    when: float
    """Seconds on time.monotonic's clock."""

    @property
    def site(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"

    @property
    def age_s(self) -> float:
        """Seconds since it was made."""
        return monotonic() - self.when

    def __str__(self) -> str:
        label = f' "{self.label}"' if self.label else ""
        return f"{self.nbytes} bytes, {self.dtype} {self.shape}{label}, of {self.site}"


class PoolMemory:
    """Memory of the pool (an Allocation); it goes back when this object is gone or `free` is called."""

    __slots__ = ("_block", "_freed", "_pool", "allocated")

    def __init__(self, pool: MemoryPool, block: Block, allocated: Allocated) -> None:
        self._block: Block | None = block
        self._freed = ""
        self._pool = pool
        self.allocated = allocated

    @property
    def pointer(self) -> int:
        """Address on the device. Raises FreedMemoryError once it was given back."""
        if self._block is None:
            raise FreedMemoryError(
                f"{self.allocated} was used after {self._freed} had freed it", next_step="free it after its last use"
            )
        return self._block.pointer

    @property
    def nbytes(self) -> int:
        """As asked for."""
        return self.allocated.nbytes

    def free(self) -> None:
        """Give it back. Raises FreedMemoryError the second time."""
        block, self._block = self._block, None
        if block is None:
            raise FreedMemoryError(
                f"{self.allocated} was freed at {':'.join(map(str, _site()))} after {self._freed} had freed it",
                next_step="free it once",
            )
        self._freed = ":".join(map(str, _site()))
        self._pool._give(self.allocated, block)

    def __del__(self) -> None:
        if self._block is not None:
            self._pool._leave(self.allocated, self._block)


@dataclass(frozen=True, slots=True)
class LeakReport:
    """Allocations that were never freed; true where there are any."""

    allocations: tuple[Allocated, ...]
    """The oldest first."""

    @property
    def nbytes(self) -> int:
        """As asked for."""
        return sum(each.nbytes for each in self.allocations)

    @property
    def sites(self) -> dict[str, tuple[int, int]]:
        """For each file and line how many there are and their bytes, the most bytes first."""
        found: dict[str, tuple[int, int]] = {}
        for each in self.allocations:
            count, nbytes = found.get(each.site, (0, 0))
            found[each.site] = count + 1, nbytes + each.nbytes
        return dict(sorted(found.items(), key=lambda item: -item[1][1]))

    def __bool__(self) -> bool:
        return bool(self.allocations)

    def __str__(self) -> str:
        if not self:
            return "nothing leaks"
        lines = [f"{len(self.allocations)} allocations of {self.nbytes} bytes were never freed"]
        lines += [f"  {site}: {count} of {nbytes} bytes" for site, (count, nbytes) in self.sites.items()]
        lines += [f"  {each}, {each.age_s:.1f} s ago" for each in self.allocations]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFigures:
    """What the pool holds, in bytes of the device's memory."""

    held: int
    """Taken from the device: active and idle."""
    active: int
    """In use."""
    requested: int
    """As asked for: `active` without what rounding costs."""
    idle: int
    """Kept for the next request of the same size."""
    fragmentation: float
    """Share of `held` that no request can get: lost by rounding, or idle beside the largest idle block."""
    most_active: int
    """High-water mark of `active`."""
    most_held: int
    live: int
    """Number of allocations in use."""
    allocations: int
    """Number of allocations ever made."""
    refused: int
    """Requests that found no memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHealth:
    """How the device's memory is."""

    free: int
    """Bytes, as the device counts them."""
    total: int
    figures: MemoryFigures
    oldest: Allocated | None
    """The allocation that has lived longest."""
    reasons: tuple[str, ...]
    """Why it is not healthy."""

    @property
    def healthy(self) -> bool:
        """Whether there is no reason against it."""
        return not self.reasons


class Watch:
    """What a pool does within a `with`: the most it had in use, and what was not freed."""

    def __init__(self, pool: MemoryPool) -> None:
        self._pool = pool
        figures = pool.figures()
        self._active = figures.active
        self._serial = figures.allocations
        self.peak = 0
        """Bytes of the device's memory in use at the most, beyond what was in use at the start."""

    @property
    def held(self) -> int:
        """Bytes of the device's memory in use now, beyond what was in use at the start."""
        return self._pool.figures().active - self._active

    def leaks(self) -> LeakReport:
        """What was allocated since the start and not freed so far."""
        return self._pool.leaks(since=self._serial)

    def __enter__(self) -> Watch:
        self._pool._watches.append(self)
        return self

    def __exit__(self, *problem: object) -> None:
        self._pool._watches.remove(self)


class MemoryPool:
    """Hands out device memory, aligned to 256 bytes, and takes it back."""

    def __init__(self, backend: Backend, stats: PerformanceStats, blocks: BlockSource | None = None) -> None:
        self._backend = backend
        self._stats = stats
        self.copies = CountedCopies(backend, stats)
        """Those of all its arrays."""
        self._blocks = blocks or _blocks(backend)
        self._live: dict[int, Allocated] = {}
        self._left: deque[tuple[Allocated, Block]] = deque()
        self._watches: list[Watch] = []
        self._lock = Lock()
        self._requested = self._most_active = self._most_held = self._allocations = self._refused = 0

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike, label: str = "") -> DeviceArray:
        """A new array, content undefined. Raises InsufficientMemoryError.

        `label` tells it from others in reports.
        """
        kind = dtype_of(dtype)
        owner = self._allocate(max(1, math.prod(shape) * kind.itemsize), shape, kind, label)
        return DeviceArray(self.copies, owner, owner.pointer, shape, kind)

    def preallocate(self, sizes: Iterable[int]) -> None:
        """Take blocks for requests of so many bytes each from the device now, so that the pool has them when they come.

        Raises InsufficientMemoryError. The simulator's memory is not kept, so nothing comes of it there.
        """
        arrays = [self.array((nbytes,), np.uint8, "preallocated") for nbytes in sizes]
        for array in arrays:
            array.owner.free()

    def release(self) -> None:
        """Give what is idle back to the device."""
        with self._lock:
            self._collect()
            self._blocks.release()

    def required_bytes(self, sizes: Iterable[int]) -> int:
        """Bytes of the device's memory that arrays of so many bytes each take together."""
        return sum(self._blocks.size(nbytes) for nbytes in sizes if nbytes)

    def available(self) -> int:
        """Bytes that can still be allocated: free on the device, or idle here. Raises DeviceError where the device
        does not answer."""
        with self._lock:
            self._collect()
            return self._backend.memory()[0] + self._blocks.idle

    def ensure_ready(self, what: str, required: int) -> None:
        """Before work: there are so many bytes. Raises DeviceError, InsufficientMemoryError; allocates nothing.

        The driver is asked only where what is idle here does not do: PyCUDA keeps Python's lock until it answers, so
        the threads of other devices wait too.
        """
        with self._lock:
            self._collect()
            if required <= self._blocks.idle:
                return
        available = self.available()
        if required > available:
            raise InsufficientMemoryError(what=what, required=required, available=available, next_step=_NEXT)

    def leaks(self, since: int = 0) -> LeakReport:
        """What is allocated and not freed; with `since`, only what came after so many allocations (see
        MemoryFigures.allocations)."""
        with self._lock:
            self._collect()
            return LeakReport(tuple(each for each in self._live.values() if each.serial > since))

    def watch(self) -> Watch:
        """A context manager that sees what is allocated within it."""
        return Watch(self)

    def figures(self) -> MemoryFigures:
        """What the pool holds now."""
        with self._lock:
            self._collect()
            return self._figures()

    def check_memory_health(self, older_than_s: float | None = None) -> MemoryHealth:
        """How the memory is, in under 5 ms; for production.

        Not healthy: the device does not answer; it counts less in use than the pool holds; what was needed at the most
        could not be had again; with `older_than_s`, an allocation is older than that. Raises nothing.
        """
        reasons = []
        free = total = 0
        with self._lock:
            self._collect()
            figures = self._figures()
            oldest = next(iter(self._live.values()), None)
            try:
                free, total = self._backend.memory()
            except DeviceError as problem:
                reasons.append(str(problem))
        if total and not self._backend.simulated and figures.held > total - free:
            reasons.append(f"the pool holds {figures.held} bytes and the device counts {total - free} in use")
        short = figures.most_active - figures.active - figures.idle - free
        if total and short > 0:
            reasons.append(
                f"{short} bytes are missing to reach the {figures.most_active} that were in use at the most; {_NEXT}"
            )
        if older_than_s is not None and oldest is not None and oldest.age_s > older_than_s:
            reasons.append(f"{oldest} was not freed for {oldest.age_s:.1f} s")
        return MemoryHealth(free=free, total=total, figures=figures, oldest=oldest, reasons=tuple(reasons))

    def _allocate(self, nbytes: int, shape: tuple[int, ...], dtype: np.dtype[Any], label: str) -> PoolMemory:
        file, line = _site()
        with self._lock:
            self._collect()
            try:
                block, hit = self._take(nbytes)
            except InsufficientMemoryError as problem:
                self._refused += 1
                what = f"{dtype} {shape}" + (f' "{label}"' if label else "")
                required = self._blocks.size(nbytes)
                raise InsufficientMemoryError(
                    what=what, required=required, available=problem.available, next_step=_NEXT
                ) from None
            if block.pointer % ALIGNMENT:
                self._blocks.give(block)
                raise DeviceError(
                    f"memory at address {block.pointer:#x}", next_step=f"use a driver that aligns to {ALIGNMENT} bytes"
                )
            self._stats.cache_hits += hit
            self._stats.cache_misses += not hit
            self._allocations += 1
            allocated = Allocated(self._allocations, nbytes, block.nbytes, shape, dtype, label, file, line, monotonic())
            self._live[allocated.serial] = allocated
            self._requested += nbytes
            active = self._blocks.active
            self._most_active = max(self._most_active, active)
            self._most_held = max(self._most_held, active + self._blocks.idle)
            for watch in self._watches:
                watch.peak = max(watch.peak, active - watch._active)
            return PoolMemory(self, block, allocated)

    def _take(self, nbytes: int) -> tuple[Block, bool]:
        try:
            return self._blocks.take(nbytes)
        except InsufficientMemoryError:
            self._blocks.release()
            return self._blocks.take(nbytes)

    def _give(self, allocated: Allocated, block: Block) -> None:
        self._leave(allocated, block)
        with self._lock:
            self._collect()

    def _leave(self, allocated: Allocated, block: Block) -> None:
        """Take note of memory whose last array is gone. The garbage collector may say so at any point of any thread,
        within this class too and where no context is current, so the next request or question does the rest."""
        self._left.append((allocated, block))

    def _collect(self) -> None:
        while self._left:
            allocated, block = self._left.popleft()
            del self._live[allocated.serial]
            self._requested -= allocated.nbytes
            self._blocks.give(block)

    def _figures(self) -> MemoryFigures:
        active, idle = self._blocks.active, self._blocks.idle
        lost = active - self._requested + idle - self._blocks.largest_idle
        return MemoryFigures(
            held=active + idle,
            active=active,
            requested=self._requested,
            idle=idle,
            fragmentation=lost / (active + idle) if active + idle else 0.0,
            most_active=self._most_active,
            most_held=self._most_held,
            live=len(self._live),
            allocations=self._allocations,
            refused=self._refused,
        )


def _blocks(backend: Backend) -> BlockSource:
    if backend.simulated:
        return PlainBlocks(backend.allocate)
    from tritmark.kernels.cuda.driver import DriverBackend
    from tritmark.kernels.cuda.pycuda_pool import PyCudaBlocks

    assert isinstance(backend, DriverBackend)
    return PyCudaBlocks(backend)


def _site() -> tuple[str, int]:
    """File and line of the caller outside this folder. Keeps no frame: that would keep the caller's arrays alive."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
