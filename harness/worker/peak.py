"""Memory of a process as the operating system reports it: resident bytes, their peak, and kernel objects."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
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
    """The memory of a process, or its peak, cannot be read here. The text states why and is the same for every
    process."""


class ProcessMemory(NamedTuple):
    """The memory of a process, in bytes."""

    resident: int
    """Its own pages, in memory or swapped: heap, stacks, data of libraries, shared memory; without file pages."""
    mapped: int
    """Its address space."""
    kernel: int
    """Page tables, unlinked files that it has open, and System V segments that it made."""
    descriptors: int
    """Number of open descriptors (not bytes)."""
    files: int = 0
    """Bytes that it wrote to files on disk, without cancelled writes, plus the bytes of all files in tmpfs, of any
    process."""


def account(pid: int, *, exact: bool) -> ProcessMemory:
    """The memory of the process now. `exact`: resident pages are counted one by one. This takes milliseconds and avoids
    the error of `miscount`. Raises UnreadableError if the system does not report it."""
    status = _read(pid, "status")
    if exact:
        resident = _kibibytes("smaps_rollup", _read(pid, "smaps_rollup"), _OWN, needed=b"Anonymous")
    else:
        resident = _kibibytes("status", status, _OWN_COUNTED, needed=b"RssAnon")
    mapped, tables = (_kibibytes("status", status, frozenset({name}), name) for name in (b"VmSize", b"VmPTE"))
    try:
        files, descriptors = _open_files(PROC / str(pid) / "fd")
    except OSError as error:
        raise UnreadableError(_words("fd", error)) from None
    return ProcessMemory(
        resident, mapped, tables + files + _segments(pid), descriptors, _written(pid) + held_in_memory()
    )


def peak(pid: int, work: Callable[[], object]) -> int:
    """Peak resident bytes during `work`, minus the resident bytes before it. Raises UnreadableError.

    First return the free memory of the heap to the system (heap.trim): otherwise memory that `work` takes from there is
    not counted. Use small_pages meanwhile: a huge page counts as 2 MiB even if only a part of it is used.
    """
    try:
        (PROC / str(pid) / "clear_refs").write_bytes(_RESET)
    except OSError as error:
        raise UnreadableError(_words("clear_refs", error)) from None
    before = _marks(pid)[1]
    work()
    return max(0, _marks(pid)[0] - before)


def miscount(obeyed: bool) -> int:
    """The error of `peak` in bytes, which comes from the counters of Linux.

    Linux counts pages per core and adds them in batches of max(32, 2 cores) pages (lib/percpu_counter.c); before Linux
    6.2, of 64 pages per thread (mm/memory.c). If huge pages cannot be disabled (see small_pages), one is within the
    error.
    """
    return mmap.PAGESIZE * max(64, 2 * (os.cpu_count() or 1)) if obeyed else _HUGE


@contextmanager
def small_pages() -> Iterator[bool]:
    """Disable huge pages for this process while the context lasts. Yields whether the system supports it."""
    prctl = ctypes.CDLL(None).prctl
    before = prctl(_GET_THP_DISABLE, 0, 0, 0, 0)
    obeyed = before >= 0 and prctl(_SET_THP_DISABLE, 1, 0, 0, 0) == 0
    try:
        yield obeyed
    finally:
        if obeyed:
            prctl(_SET_THP_DISABLE, before, 0, 0, 0)


def touch() -> None:
    """Write to every page of a new mapping of KNOWN bytes, and unmap it."""
    with closing(mmap.mmap(-1, KNOWN, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)) as mapping:
        for start in range(0, KNOWN, mmap.PAGESIZE):
            mapping[start] = 1


def _marks(pid: int) -> tuple[int, int]:
    """Peak and current resident bytes."""
    reported = _read(pid, "status")
    most, now = (_kibibytes("status", reported, frozenset({name}), name) for name in (b"VmHWM", b"VmRSS"))
    return most, now


def _read(pid: int, name: str) -> bytes:
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError as error:
        raise UnreadableError(_words(name, error)) from None


def _words(name: str, error: OSError) -> str:
    return f"{PROC}/PID/{name}: {error.strerror or error}"


def _kibibytes(file: str, given: bytes, names: frozenset[bytes], needed: bytes) -> int:
    """The sum of the lines with these names, in bytes. A missing line counts as 0, except `needed`, which must
    exist."""
    total, there = 0, False
    for line in given.splitlines():
        name, _, rest = line.partition(b":")
        if name in names:
            there |= name == needed
            try:
                total += int(rest.split()[0]) << 10
            except (ValueError, IndexError):
                raise UnreadableError(f"{PROC}/PID/{file}: {name.decode()} has no number") from None
    if not there:
        raise UnreadableError(f"{PROC}/PID/{file} has no {needed.decode()}")
    return total


def _open_files(folder: Path) -> tuple[int, int]:
    """Bytes of unlinked files, and the number of descriptors; both without the harness's blocks."""
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


def held_in_memory() -> int:
    """Bytes of files in all writable tmpfs mounts."""
    total = 0
    for folder in _in_memory():
        with suppress(OSError):
            found = os.statvfs(folder)
            total += (found.f_blocks - found.f_bfree) * found.f_frsize
    return total


@cache
def _in_memory() -> tuple[str, ...]:
    """A folder of each writable tmpfs."""
    folders: dict[int, str] = {}
    for line in (PROC / "self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        folder = fields.split()[4].encode().decode("unicode_escape")
        if kind.split()[0] == "tmpfs" and os.access(folder, os.W_OK):
            with suppress(OSError):
                folders.setdefault(os.stat(folder).st_dev, folder)
    return tuple(folders.values())


def _written(pid: int) -> int:
    reported = dict(line.split(b": ") for line in _read(pid, "io").splitlines())
    try:
        return int(reported[b"write_bytes"]) - int(reported[b"cancelled_write_bytes"])
    except (KeyError, ValueError):
        raise UnreadableError(f"{PROC}/PID/io has no write_bytes") from None


def _segments(pid: int) -> int:
    """Bytes of the System V segments that the process made; 0 if this kernel has none."""
    with suppress(OSError, ValueError, IndexError):
        rows = [line.split() for line in (PROC / "sysvipc/shm").read_text().splitlines()[1:]]
        return sum(int(row[3]) for row in rows if int(row[4]) == pid)
    return 0
