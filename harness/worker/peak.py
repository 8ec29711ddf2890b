"""What the system knows of a process's memory, read from outside: what is resident, what that was at the most, what
is held in its name."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tritmark.harness.worker.shared import MADE

PROC = Path("/proc")

_RESET = b"5"
KNOWN = 1 << 20
"""Bytes that `touch` writes to."""
_SET_THP_DISABLE, _GET_THP_DISABLE = 41, 42  # linux/prctl.h
_HUGE = 1 << 21
_OWN = frozenset({b"Anonymous", b"Swap", b"Pss_Shmem", b"Private_Hugetlb", b"Shared_Hugetlb"})
_OWN_COUNTED = frozenset({b"RssAnon", b"RssShmem", b"VmSwap", b"HugetlbPages"})
_BLOCK = 512
"""Bytes of a block of stat(2)."""


class UnreadableError(Exception):
    """The high-water mark cannot be set back or read here; the text says why."""


class ProcessMemory(NamedTuple):
    """What a process holds; bytes."""

    resident: int
    """Its own pages, in memory or swapped: heap, stacks, data of libraries, shared memory; no file's."""
    mapped: int
    """Its address space."""
    kernel: int
    """Page tables, files without a name that only it has open, and System V segments that it made."""
    descriptors: int
    """How many are open; no bytes."""


def account(pid: int, *, exact: bool) -> ProcessMemory | None:
    """What the process holds now; None where this system does not tell. `exact`: what is resident is counted page by
    page, which takes milliseconds, and is not off by what `miscount` says."""
    folder = PROC / str(pid)
    try:
        status = (folder / "status").read_bytes()
        resident = (
            _kibibytes((folder / "smaps_rollup").read_bytes(), _OWN) if exact else _kibibytes(status, _OWN_COUNTED)
        )
        files, descriptors = _open_files(folder / "fd")
    except (OSError, ValueError, IndexError):
        return None
    mapped, tables = (_kibibytes(status, frozenset({name})) for name in (b"VmSize", b"VmPTE"))
    return ProcessMemory(resident, mapped, tables + files + _segments(pid), descriptors)


def peak(pid: int, work: Callable[[], object]) -> int:
    """Bytes that were resident at the most during `work`, beyond what was resident before it. Raises UnreadableError.

    Free memory of the heap has to be given back to the system first (heap.trim): what `work` takes from there would not
    show otherwise. And pages have to be small meanwhile: a huge one counts as 2 MiB, however little of it is wanted.
    """
    clear = PROC / str(pid) / "clear_refs"
    try:
        clear.write_bytes(_RESET)
    except OSError as error:
        raise UnreadableError(f"{clear}: {error.strerror}") from None
    before = _marks(pid)[1]
    work()
    return max(0, _marks(pid)[0] - before)


def miscount(obeyed: bool) -> int:
    """Bytes by which `peak` may be wrong by the kernel's own account.

    It counts pages for each core and sums them up only once a core has a batch of them, of max(32, 2 cores) pages
    (Linux's lib/percpu_counter.c), or before Linux 6.2 of 64 pages a thread (mm/memory.c). Where huge pages cannot be
    kept away (see small_pages), one of them is within the error.
    """
    return mmap.PAGESIZE * max(64, 2 * (os.cpu_count() or 1)) if obeyed else _HUGE


@contextmanager
def small_pages() -> Iterator[bool]:
    """While this lasts, no page of this process becomes a huge one. Gives whether the system obeys."""
    prctl = ctypes.CDLL(None).prctl
    before = prctl(_GET_THP_DISABLE, 0, 0, 0, 0)
    obeyed = before >= 0 and prctl(_SET_THP_DISABLE, 1, 0, 0, 0) == 0
    try:
        yield obeyed
    finally:
        if obeyed:
            prctl(_SET_THP_DISABLE, before, 0, 0, 0)


def touch() -> None:
    """Write to every page of a new mapping of KNOWN bytes, and give it back."""
    with closing(mmap.mmap(-1, KNOWN, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)) as mapping:
        for start in range(0, KNOWN, mmap.PAGESIZE):
            mapping[start] = 1


def _marks(pid: int) -> tuple[int, int]:
    """The high-water mark of resident memory and what is resident now, bytes."""
    status = PROC / str(pid) / "status"
    try:
        told = status.read_bytes()
    except OSError as error:
        raise UnreadableError(f"{status}: {error.strerror}") from None
    if b"\nVmHWM:" not in told or b"\nVmRSS:" not in told:
        raise UnreadableError(f"{status} has no VmHWM and VmRSS")
    return _kibibytes(told, frozenset({b"VmHWM"})), _kibibytes(told, frozenset({b"VmRSS"}))


def _kibibytes(told: bytes, names: frozenset[bytes]) -> int:
    """The sum of the lines of those names, in bytes."""
    total = 0
    for line in told.splitlines():
        name, _, rest = line.partition(b":")
        if name in names:
            total += int(rest.split()[0]) << 10
    return total


def _open_files(folder: Path) -> tuple[int, int]:
    """Bytes of files that have no name and are not the harness's blocks, and how many descriptors there are beside
    those."""
    held: dict[int, int] = {}
    ours: set[int] = set()
    count = 0
    for each in os.listdir(folder):
        with suppress(OSError):  # closed meanwhile
            found = os.stat(folder / each)
            if found.st_ino in MADE - ours:
                ours.add(found.st_ino)
                continue
            count += 1
            if not found.st_nlink:
                held[found.st_ino] = found.st_blocks * _BLOCK
    return sum(held.values()), count


def _segments(pid: int) -> int:
    """Bytes of the System V segments that the process made; 0 where there are none in this kernel."""
    with suppress(OSError, ValueError, IndexError):
        rows = [line.split() for line in (PROC / "sysvipc/shm").read_text().splitlines()[1:]]
        return sum(int(row[3]) for row in rows if int(row[4]) == pid)
    return 0
