"""Counts of work on a device, and the contents of its memory pool."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFigures:
    """Contents of a device's memory pool, in bytes of device memory."""

    held: int = 0
    """Taken from the device: active and idle."""
    active: int = 0
    """In use."""
    requested: int = 0
    """Requested bytes: `active` without rounding."""
    idle: int = 0
    """Kept for later requests of the same size."""
    fragmentation: float = 0.0
    """Share of `held` that no request can get: lost by rounding, or idle outside the largest idle block."""
    most_active: int = 0
    """High-water mark of `active`."""
    most_held: int = 0
    live: int = 0
    """Number of allocations in use."""
    allocations: int = 0
    """Number of allocations ever made."""
    refused: int = 0
    """Requests that failed for lack of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStats:
    """Counts of a process's work on a device, and its memory pool. All zero before the first work on the device."""

    device: str
    """With its number, such as "cuda:0"."""
    simulated: bool = False
    """A simulator did the work: it has no speed."""
    launches: int = 0
    kernel_ns: float = 0.0
    """Device time of the timed launches in nanoseconds; concurrent launches each count in full."""
    uploads: int = 0
    """Copies from the host to the device."""
    downloads: int = 0
    """Copies from the device to the host."""
    bytes_uploaded: int = 0
    bytes_downloaded: int = 0
    cache_hits: int = 0
    """Allocations from blocks that the pool kept."""
    cache_misses: int = 0
    """Allocations that the pool took from the device."""
    compiled: int = 0
    """Kernels that were compiled."""
    loaded: int = 0
    """Kernels that came from the cache of compiled code."""
    pool: MemoryFigures = MemoryFigures()
    """The pool now; its high-water marks and numbers are those since the first work on the device."""

    @property
    def hit_rate(self) -> float | None:
        """Share of the allocations that the pool served from kept blocks; None without allocations."""
        asked = self.cache_hits + self.cache_misses
        return self.cache_hits / asked if asked else None

    def since(self, earlier: DeviceStats) -> DeviceStats:
        """These counts minus earlier ones; the pool is that of now."""
        return replace(self, **{name: getattr(self, name) - getattr(earlier, name) for name in COUNTS})


COUNTS = tuple(each.name for each in fields(DeviceStats) if each.name not in {"device", "simulated", "pool"})
"""Names of the fields that only grow."""
