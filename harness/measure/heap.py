"""Memory of this process: heap bytes in use, other mapped bytes, and page faults."""

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
"""Bytes of the smallest block of Python's small-object allocator, which reports the number of blocks but not their
sizes."""

_TIMES = 3

_LARGE = 1 << 22
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Constants of <malloc.h>."""


class HeldBytes(NamedTuple):
    """Bytes that the process holds. A leak raises one of them permanently."""

    heap: int
    """Bytes in use: malloc's, plus LEAST_BLOCK for each small Python object. If the C library does not report them (not
    glibc 2.33 or later), the resident memory of the process."""
    mapped: int
    """Address space of mappings outside malloc: files, stacks of threads, Python's arenas. 0 if it cannot be separated
    from the heap."""


def held() -> HeldBytes | None:
    """The bytes held now; None if this system does not report them. Takes microseconds and allocates nothing that
    stays."""
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
    """Minor page faults of the process; None if this system does not report them."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def settle() -> None:
    """Free Python's own caches: objects in cycles, free lists, and the attribute cache, whose gradual growth would look
    like a leak of some bytes per call."""
    clear = getattr(sys, "_clear_type_cache", None)
    if clear is not None:
        clear()
    gc.collect()


def trim() -> None:
    """Return malloc's free memory to the system, so that the next allocation touches new pages. Does nothing if
    unsupported."""
    library = _library()
    if library is not None and hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def give_back_large() -> None:
    """Make malloc map each array of _LARGE bytes or more separately, and unmap it when it is freed. By default, glibc
    soon keeps arrays of up to 32 MiB and the free memory between them. Does nothing if unsupported."""
    library = _library()
    if library is not None and hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        library.mallopt(_M_TRIM_THRESHOLD, _LARGE)


def allocated(work: Callable[[], object]) -> int:
    """Peak bytes that Python and NumPy allocate during `work`: the minimum of _TIMES runs."""
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
    """A function that returns malloc's bytes from the system, and its bytes in use; None if glibc has no mallinfo2."""
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
