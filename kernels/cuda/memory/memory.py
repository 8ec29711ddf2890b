"""The device's memory pool. It records what it allocated, where and when, and reports before work whether memory
suffices.

Memory is freed with the last array in it or explicitly, and serves the next request immediately. Code that puts work
into a stream keeps its arrays until that work is complete, as CudaLaunch.run, Batch and Transfers do.
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
from tritmark.harness.spec import MemoryFigures
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.backend import Backend
from tritmark.kernels.cuda.memory.blocks import ALIGNMENT, Block, BlockSource, PlainBlocks
from tritmark.kernels.cuda.memory.stats import CountedCopies, PerformanceStats

_CUDA = os.path.dirname(os.path.dirname(__file__)) + os.sep
_NEXT = "free arrays on the device, end other processes that use it, or take the work in smaller pieces"


class Allocated(NamedTuple):
    """An allocation: its purpose, the place in the code, and the time."""

    serial: int
    """Its number among all allocations of the pool, from 1."""
    nbytes: int
    """Requested bytes."""
    taken: int
    """Bytes of device memory that it occupies."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    label: str
    file: str
    line: int
    """Line of the caller outside kernels/cuda/."""
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
    """Memory of the pool (an Allocation); freed by `free` or with this object."""

    __slots__ = ("_block", "_freed", "_pool", "allocated")

    def __init__(self, pool: MemoryPool, block: Block, allocated: Allocated) -> None:
        self._block: Block | None = block
        self._freed = ""
        self._pool = pool
        self.allocated = allocated

    @property
    def pointer(self) -> int:
        """Address on the device. Raises FreedMemoryError after it was freed."""
        if self._block is None:
            raise FreedMemoryError(
                f"{self.allocated} was used after {self._freed} freed it", next_step="free it after its last use"
            )
        return self._block.pointer

    @property
    def nbytes(self) -> int:
        """Requested bytes."""
        return self.allocated.nbytes

    def free(self) -> None:
        """Free the memory. Raises FreedMemoryError the second time."""
        block, self._block = self._block, None
        if block is None:
            raise FreedMemoryError(
                f"{self.allocated} was freed at {':'.join(map(str, _site()))} after {self._freed} freed it",
                next_step="free it once",
            )
        self._freed = ":".join(map(str, _site()))
        self._pool._give(self.allocated)

    def __del__(self) -> None:
        if self._block is not None:
            self._pool._leave(self.allocated)


@dataclass(frozen=True, slots=True)
class LeakReport:
    """Allocations that were never freed; true if there are any."""

    allocations: tuple[Allocated, ...]
    """Oldest first."""

    @property
    def nbytes(self) -> int:
        """Requested bytes."""
        return sum(each.nbytes for each in self.allocations)

    @property
    def sites(self) -> dict[str, tuple[int, int]]:
        """Number and bytes of allocations by file and line, most bytes first."""
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
class MemoryHealth:
    """State of a device's memory, and of this process's pool there."""

    device: str = ""
    """With its number, such as "cuda:0"; "" if the pool itself was asked."""
    simulated: bool = False
    """The memory is the simulator's."""
    free: int
    """Bytes that the device reports as free."""
    total: int
    figures: MemoryFigures
    oldest: Allocated | None
    """The oldest live allocation."""
    reasons: tuple[str, ...]
    """Reasons why it is not healthy."""

    @property
    def healthy(self) -> bool:
        """Whether there are no such reasons."""
        return not self.reasons


class Watch:
    """The activity of a pool within a `with`: its peak use, and allocations that were not freed."""

    def __init__(self, pool: MemoryPool) -> None:
        self._pool = pool
        figures = pool.figures()
        self._active = figures.active
        self._serial = figures.allocations
        self.peak = 0
        """Peak bytes of device memory in use, beyond the use at the start."""

    @property
    def held(self) -> int:
        """Bytes of device memory in use now, beyond the use at the start."""
        return self._pool.figures().active - self._active

    def leaks(self) -> LeakReport:
        """Allocations since the start that are not freed yet."""
        return self._pool.leaks(since=self._serial)

    def __enter__(self) -> Watch:
        self._pool._watches.append(self)
        return self

    def __exit__(self, *problem: object) -> None:
        self._pool._watches.remove(self)


class MemoryPool:
    """Allocates device memory aligned to 256 bytes."""

    def __init__(self, backend: Backend, stats: PerformanceStats, blocks: BlockSource | None = None) -> None:
        self._backend = backend
        self._stats = stats
        self.copies = CountedCopies(backend, stats)
        """The copies of all its arrays."""
        self._blocks = blocks or _blocks(backend)
        # The pool refers to each block in use: the garbage collector calls the finalizers of all objects of a cycle,
        # so a block that only the cycle refers to would be freed by the driver and kept here.
        self._live: dict[int, tuple[Allocated, Block]] = {}
        self._left: deque[int] = deque()
        self._watches: list[Watch] = []
        self._lock = Lock()
        self._requested = self._most_active = self._most_held = self._allocations = self._refused = 0

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike, label: str = "") -> DeviceArray:
        """A new array, content undefined. Raises InsufficientMemoryError.

        `label` identifies it in reports.
        """
        kind = dtype_of(dtype)
        owner = self._allocate(max(1, math.prod(shape) * kind.itemsize), shape, kind, label)
        return DeviceArray(self.copies, owner, owner.pointer, shape, kind)

    def preallocate(self, sizes: Iterable[int]) -> None:
        """Take blocks for requests of these bytes from the device now, so that later requests find them in the pool.

        Raises InsufficientMemoryError. In the simulator it has no effect, because the pool keeps no memory there.
        """
        arrays = [self.array((nbytes,), np.uint8, "preallocated") for nbytes in sizes]
        for array in arrays:
            array.owner.free()

    def release(self) -> None:
        """Return idle memory to the device."""
        with self._lock:
            self._collect()
            self._blocks.release()

    def required_bytes(self, sizes: Iterable[int]) -> int:
        """Bytes of device memory that arrays of these sizes occupy together."""
        return sum(self._blocks.size(nbytes) for nbytes in sizes if nbytes)

    def available(self) -> int:
        """Bytes that can still be allocated: free on the device, or idle in the pool. Raises DeviceError if the device
        does not respond."""
        with self._lock:
            self._collect()
            return self._backend.memory()[0] + self._blocks.idle

    def ensure_ready(self, what: str, required: int) -> None:
        """Check before work that so many bytes are available. Raises DeviceError, InsufficientMemoryError; allocates
        nothing.

        The driver is called only if idle memory does not suffice: PyCUDA holds the GIL until it returns, so threads of
        other devices would wait too.
        """
        with self._lock:
            self._collect()
            if required <= self._blocks.idle:
                return
        available = self.available()
        if required > available:
            raise InsufficientMemoryError(what=what, required=required, available=available, next_step=_NEXT)

    def leaks(self, since: int = 0) -> LeakReport:
        """Allocations that are not freed; with `since`, only those after so many allocations (see
        MemoryFigures.allocations)."""
        with self._lock:
            self._collect()
            return LeakReport(tuple(each for each, _ in self._live.values() if each.serial > since))

    def watch(self) -> Watch:
        """A context manager that records the allocations within it."""
        return Watch(self)

    def figures(self) -> MemoryFigures:
        """The contents of the pool now."""
        with self._lock:
            self._collect()
            return self._figures()

    def check_memory_health(self, older_than_s: float | None = None) -> MemoryHealth:
        """Check the memory in under 5 ms; for production.

        Not healthy: the device does not respond; it reports less memory in use than the pool holds; the peak use could
        not be allocated again; with `older_than_s`, an allocation is older than that. Never raises.
        """
        reasons = []
        free = total = 0
        with self._lock:
            self._collect()
            figures = self._figures()
            oldest = next((each for each, _ in self._live.values()), None)
            try:
                free, total = self._backend.memory()
            except DeviceError as problem:
                reasons.append(str(problem))
        if total and not self._backend.simulated and figures.held > total - free:
            reasons.append(f"the pool holds {figures.held} bytes and the device reports {total - free} in use")
        short = figures.most_active - figures.active - figures.idle - free
        if total and short > 0:
            reasons.append(f"{short} bytes are missing for the peak use of {figures.most_active}; {_NEXT}")
        if older_than_s is not None and oldest is not None and oldest.age_s > older_than_s:
            reasons.append(f"{oldest} was not freed for {oldest.age_s:.1f} s")
        return MemoryHealth(
            simulated=self._backend.simulated,
            free=free,
            total=total,
            figures=figures,
            oldest=oldest,
            reasons=tuple(reasons),
        )

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
                    f"memory at address {block.pointer:#x}",
                    next_step=f"use a driver that aligns to {ALIGNMENT} bytes",
                )
            self._stats.cache_hits += hit
            self._stats.cache_misses += not hit
            self._allocations += 1
            allocated = Allocated(self._allocations, nbytes, block.nbytes, shape, dtype, label, file, line, monotonic())
            self._live[allocated.serial] = allocated, block
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

    def _give(self, allocated: Allocated) -> None:
        self._leave(allocated)
        with self._lock:
            self._collect()

    def _leave(self, allocated: Allocated) -> None:
        """Record memory whose last array is gone. The garbage collector may call this at any point of any thread, also
        inside this class and without a current context, so the next request does the rest."""
        self._left.append(allocated.serial)

    def _collect(self) -> None:
        while self._left:
            allocated, block = self._live.pop(self._left.popleft())
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
    from tritmark.kernels.cuda.driver.driver import DriverBackend
    from tritmark.kernels.cuda.memory.pycuda_pool import PyCudaBlocks

    assert isinstance(backend, DriverBackend)
    return PyCudaBlocks(backend)


def _site() -> tuple[str, int]:
    """File and line of the caller outside kernels/cuda/. Keeps no frame, which would keep the caller's arrays alive."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_CUDA):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
