"""What this process holds: bytes in use on its heap, bytes mapped beside it, and how often it touched a page for the
first time."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

STATM = Path("/proc/self/statm")

LEAST_BLOCK = 16
"""Bytes of the smallest block of Python's allocator of small objects, which tells how many are in use and not how
large they are."""

_TIMES = 3

_LARGE = 1 << 22
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of <malloc.h>."""


class HeldBytes(NamedTuple):
    """Bytes that the process holds. What is leaked raises one of them for good."""

    heap: int
    """In use: what malloc handed out, and for each small object of Python the least that it takes. Where the C
    library does not tell (it is not glibc 2.33 or later), the resident memory of the process."""
    mapped: int
    """Address space of other mappings than malloc's: files, stacks of threads, Python's arenas. 0 where it cannot be
    bytes_of_heap from the heap."""


def held() -> HeldBytes | None:
    """What the process holds now; None where this system does not tell. Takes microseconds, and keeps nothing."""
    pages = _pages()
    if pages is None:
        return None
    size, resident = pages
    malloc = _malloc()
    if malloc is None:
        return HeldBytes(resident, 0)
    taken, used = malloc()
    return HeldBytes(used + LEAST_BLOCK * sys.getallocatedblocks(), size - taken)


def faults() -> int | None:
    """Pages that the process has touched for the first time, without reading a disk; None where this system does not
    tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def settle() -> None:
    """Free what Python itself keeps for later: objects in cycles, its free lists, and the names in its cache of
    attributes, which is filled by and by and would look like a leak of some bytes a call."""
    clear = getattr(sys, "_clear_type_cache", None)
    if clear is not None:
        clear()
    gc.collect()


def trim() -> None:
    """Give what malloc keeps for later back to the system, so that who asks next has to touch new pages. Nothing
    where that cannot be."""
    library = _library()
    if library is not None and hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def give_back_large() -> None:
    """From now on malloc takes each array of _LARGE bytes or more from the system by itself and gives it back once it
    is freed. Of its own accord it soon keeps those of up to 32 MiB, and what is free between them. Nothing where that
    cannot be."""
    library = _library()
    if library is not None and hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        library.mallopt(_M_TRIM_THRESHOLD, _LARGE)


def allocated(work: Callable[[], object]) -> int:
    """Bytes that Python and NumPy allocate during `work` and hold at the most at once: the least of some times."""
    import tracemalloc

    begun = not tracemalloc.is_tracing()
    if begun:
        tracemalloc.start(1)
    try:
        taken, nothing = (min(_traced(each) for _ in range(_TIMES)) for each in (work, _nothing))
    finally:
        if begun:
            tracemalloc.stop()
    return max(0, taken - nothing)


def _traced(work: Callable[[], object]) -> int:
    import tracemalloc

    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    work()
    return tracemalloc.get_traced_memory()[1] - before


def _nothing() -> None:
    pass


def _pages() -> tuple[int, int] | None:
    """Bytes of address space and of resident memory."""
    try:
        fields = STATM.read_bytes().split()
    except OSError:
        return None
    page = os.sysconf("SC_PAGESIZE")
    return int(fields[0]) * page, int(fields[1]) * page


@cache
def _library() -> object | None:
    """The C library that is loaded, or None."""
    import ctypes

    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):
        return None


@cache
def _malloc() -> Callable[[], tuple[int, int]] | None:
    """A function that gives the bytes that malloc has from the system, and those of them that are in use; None where
    there is none."""
    import ctypes

    library = _library()
    ask = getattr(library, "mallinfo2", None)
    if ask is None:
        return None
    names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")

    class Mallinfo2(ctypes.Structure):
        """`struct mallinfo2` of <malloc.h>."""

        _fields_ = [(name, ctypes.c_size_t) for name in names]

    ask.argtypes = ()
    ask.restype = Mallinfo2

    def bytes_of_heap() -> tuple[int, int]:
        found = ask()
        return found.arena + found.hblkhd, found.uordblks + found.hblkhd

    return bytes_of_heap
