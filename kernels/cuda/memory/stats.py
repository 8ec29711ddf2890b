"""Counts of work on the device."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import count
from threading import Lock
from typing import Any

import numpy.typing as npt

from tritmark.kernels.cuda.backend import Backend, Stream


@dataclass(slots=True)
class PerformanceStats:
    """Counts of one context since it was made or reset (specification, 4.5)."""

    launches: int = 0
    kernel_ns: float = 0.0
    """Device time of the timed launches; concurrent launches each count in full."""
    uploads: int = 0
    downloads: int = 0
    bytes_uploaded: int = 0
    bytes_downloaded: int = 0
    cache_hits: int = 0
    """Allocations from blocks that the pool kept."""
    cache_misses: int = 0
    compiled: int = 0
    """Kernels that were compiled."""
    loaded: int = 0
    """Kernels that came from the cubin cache."""

    def reset(self) -> None:
        """Set every count to 0."""
        for field in fields(self):
            setattr(self, field.name, field.default)

    def copy(self) -> PerformanceStats:
        """The current counts."""
        return PerformanceStats(**{field.name: getattr(self, field.name) for field in fields(self)})

    def since(self, earlier: PerformanceStats) -> PerformanceStats:
        """The difference to `earlier`, a copy of these counts."""
        return PerformanceStats(
            **{field.name: getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self)}
        )


class CountedCopies:
    """The copies of a backend, counted also from several threads. A copy counts when it is requested, not when it is
    complete."""

    def __init__(self, backend: Backend, stats: PerformanceStats) -> None:
        self._backend = backend
        self._stats = stats
        self._lock = Lock()
        self._numbers = count(1)
        self.unordered = 0
        """A number that changes with each copy to the device without a stream."""

    def write(self, pointer: int, values: npt.NDArray[Any], stream: Stream | None = None) -> None:
        """See Backend.write."""
        self._backend.write(pointer, values, stream)
        if stream is None:
            self.unordered = next(self._numbers)
        self.sent(1, values.nbytes)

    def sent(self, copies: int, nbytes: int) -> None:
        """Count copies to the device."""
        with self._lock:
            self._stats.uploads += copies
            self._stats.bytes_uploaded += nbytes

    def read(self, pointer: int, into: npt.NDArray[Any], stream: Stream | None = None) -> None:
        """See Backend.read."""
        self._backend.read(pointer, into, stream)
        self.fetched(1, into.nbytes)

    def fetched(self, copies: int, nbytes: int) -> None:
        """Count copies from the device."""
        with self._lock:
            self._stats.downloads += copies
            self._stats.bytes_downloaded += nbytes
