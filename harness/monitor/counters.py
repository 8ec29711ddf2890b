"""Counts of calls in memory: one set for each thread, so that no call takes a lock.

A count only grows while a monitor is active. A session is the difference of two snapshots, so nested sessions cost a
call nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tritmark.harness.monitor.histogram import added
from tritmark.harness.monitor.hook import KernelRan, Watcher
from tritmark.harness.monitor.shapes import shape_class
from tritmark.harness.monitor.work import ordered

NO_KERNEL = "none"
"""Kernel of calls that were refused before a kernel was chosen."""
UNKNOWN = "not reported"
"""Kernel of calls that did not report it."""
_NONE, _UNKNOWN = KernelRan(NO_KERNEL, {}), KernelRan(UNKNOWN, {})
_MOST_CELLS = 4096
"""Cells of a thread; more are added up by shape class."""
_MOST_SERIES = 4096
OTHER = "other kernels"
"""Kernel of the calls of more than _MOST_SERIES series, together."""


@dataclass(frozen=True, slots=True, order=True)
class SeriesKey:
    """Calls whose times are compared."""

    entry: str
    """The function that was called, such as QuantizedLinear."""
    kernel: str
    """Id of the variant that ran; of several the last."""
    shape: str
    """See shapes.shape_class."""
    threads: int
    """Thread limit; 0 on a device with its own memory."""
    asynchronous: bool = False
    """Times are those of the submission, because the call does not wait for the device."""
    simulated: bool = False
    """Without times: a simulator ran the kernel."""


@dataclass(slots=True)
class Counts:
    """Counts of one series."""

    calls: int = 0
    """Calls that returned."""
    busy_ns: float = 0.0
    """Of all calls: each timed call counts as often as calls were timed so rarely at that moment."""
    histogram: dict[int, int] = field(default_factory=dict)
    """Of the timed calls, see histogram."""
    errors: dict[str, int] = field(default_factory=dict)
    """Class of the exception to number of calls that raised it."""
    sizes: dict[tuple[tuple[str, int], ...], int] = field(default_factory=dict)
    """Axes to number of calls."""

    def add(self, other: Counts, sign: int = 1) -> None:
        """Add the counts of another set, or subtract them."""
        self.calls += sign * other.calls
        self.busy_ns += sign * other.busy_ns
        self.histogram = added(self.histogram, other.histogram, sign)
        for kind, count in other.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + sign * count
        for axes, count in other.sizes.items():
            self.sizes[axes] = self.sizes.get(axes, 0) + sign * count


Snapshot = dict[SeriesKey, Counts]


class Counters:
    """The counts of all threads. `watch` counts calls while it is hook.active."""

    def __init__(self, recorder: Callable[..., Watcher]) -> None:
        self._threads: list[Any] = []
        self._ended: Snapshot = {}
        """Counts of threads that have ended."""
        # Reentrant: a finalizer may make a first call of its thread during a snapshot.
        self._lock = threading.RLock()
        self.watch = recorder(self._begun, self._full, _MOST_CELLS, _NONE, _UNKNOWN)

    def _begun(self, counts: Any) -> None:
        """A thread calls for the first time."""
        counts.owner, counts.folded = threading.current_thread(), {}
        with self._lock:
            ended = [each for each in self._threads if not each.owner.is_alive()]
            for each in ended:
                _merge(self._ended, _counted(each))
            self._threads = [each for each in self._threads if each.owner.is_alive()] + [counts]

    def _full(self, counts: Any) -> None:
        """A thread has its most cells: add them up by series."""
        with self._lock:
            _merge(counts.folded, _summed(counts.taken()))

    def calls(self) -> int:
        """Calls that returned so far, quicker than by a snapshot."""
        with self._lock:
            found = sum(each.calls for each in self._ended.values())
            for thread in self._threads:
                found += sum(each.calls for each in thread.folded.values())
                found += sum(each.calls for each in list(thread.cells.values()))
            return found

    def snapshot(self) -> Snapshot:
        """All counts so far. May lack the current call of another thread."""
        with self._lock:
            found: Snapshot = {}
            _merge(found, self._ended)
            for each in self._threads:
                _merge(found, _counted(each))
            return found


def _counted(thread: Any) -> Snapshot:
    found: Snapshot = {}
    _merge(found, thread.folded)
    _merge(found, _summed(thread.cells))
    return found


def _summed(cells: Mapping[tuple[str, KernelRan], Any]) -> Snapshot:
    """Cells by series. The thread may count meanwhile."""
    found: Snapshot = {}
    for (entry, ran), cell in list(cells.items()):
        axes = ordered(ran.kernel, ran.axes)
        key = SeriesKey(entry, ran.kernel, shape_class(axes), ran.threads, ran.asynchronous, ran.simulated)
        sizes = {axes: cell.calls} if axes else {}
        _merge(found, {key: Counts(cell.calls, cell.busy_ns, cell.histogram(), dict(cell.errors), sizes)})
    return found


def _merge(found: Snapshot, more: Snapshot) -> None:
    for key, counts in more.items():
        into = key if key in found or len(found) < _MOST_SERIES else replace(key, kernel=OTHER, shape="")
        found.setdefault(into, Counts()).add(counts)


def since(now: Snapshot, earlier: Snapshot) -> Snapshot:
    """The calls between two snapshots."""
    found: Snapshot = {}
    for key, counts in now.items():
        _merge(found, {key: counts})
        if key in earlier:
            found[key].add(earlier[key], -1)
            found[key].errors = {name: count for name, count in found[key].errors.items() if count}
            found[key].sizes = {axes: count for axes, count in found[key].sizes.items() if count}
    return {key: counts for key, counts in found.items() if counts.calls or counts.errors}
