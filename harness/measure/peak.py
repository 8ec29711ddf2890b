"""The most resident memory that this process had during a piece of work, from the kernel's own high-water mark."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tritmark.harness.measure.heap import trim

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")

_RESET = b"5"
_KNOWN = 1 << 20
_SET_THP_DISABLE, _GET_THP_DISABLE = 41, 42  # linux/prctl.h
_HUGE = 1 << 21


class UnreadableError(Exception):
    """The high-water mark cannot be set back or read here; the text says why."""


def peak(work: Callable[[], object]) -> int:
    """Bytes that were resident at the most during `work`, beyond what was resident before it. Raises UnreadableError.

    Free memory of the heap goes back to the system first: what `work` takes from there would not show otherwise. Pages are small meanwhile:
    a huge one counts as 2 MiB, however little of it is wanted.
    """
    with small_pages():
        return _peak(work)


@contextmanager
def small_pages() -> Iterator[bool]:
    """While this lasts, no page becomes a huge one. Gives whether the system obeys."""
    prctl = ctypes.CDLL(None).prctl
    before = prctl(_GET_THP_DISABLE, 0, 0, 0, 0)
    obeyed = before >= 0 and prctl(_SET_THP_DISABLE, 1, 0, 0, 0) == 0
    try:
        yield obeyed
    finally:
        if obeyed:
            prctl(_SET_THP_DISABLE, before, 0, 0, 0)


def _peak(work: Callable[[], object]) -> int:
    trim()
    try:
        CLEAR.write_bytes(_RESET)
    except OSError as error:
        raise UnreadableError(f"{CLEAR}: {error.strerror}") from None
    before = _marks()[1]
    work()
    return max(0, _marks()[0] - before)


def floor() -> int:
    """Bytes by which `peak` may be wrong: what the kernel is free to hold back, or more where `peak` gives more for work that does nothing
    or is further off for pages that are known.

    The kernel counts pages for each core and sums them up only once a core has a batch of them, of max(32, 2 cores) pages (Linux's
    lib/percpu_counter.c), or before Linux 6.2 of 64 pages a thread (mm/memory.c). Where huge pages cannot be kept away, one of them is
    within the error. Raises UnreadableError.
    """
    with small_pages() as obeyed:
        batch = mmap.PAGESIZE * max(64, 2 * (os.cpu_count() or 1)) if obeyed else _HUGE
    return max(batch, peak(_nothing), abs(peak(_touch) - _KNOWN))


def _nothing() -> None:
    pass


def _touch() -> None:
    """Write to every page of a new mapping, and give it back."""
    with closing(mmap.mmap(-1, _KNOWN, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)) as mapping:
        for start in range(0, _KNOWN, mmap.PAGESIZE):
            mapping[start] = 1


def _marks() -> tuple[int, int]:
    """The high-water mark of resident memory and what is resident now, bytes."""
    found = {}
    try:
        lines = STATUS.read_bytes().splitlines()
    except OSError as error:
        raise UnreadableError(f"{STATUS}: {error.strerror}") from None
    for line in lines:
        name, _, rest = line.partition(b":")
        if name in {b"VmHWM", b"VmRSS"}:
            found[name] = int(rest.split()[0]) << 10
    if len(found) < 2:
        raise UnreadableError(f"{STATUS} has no VmHWM and VmRSS")
    return found[b"VmHWM"], found[b"VmRSS"]
