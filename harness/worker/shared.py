"""Memory shared by parent and worker, between two guard pages.

A block is an anonymous file (memfd). It has no name, so nothing is left behind when processes die. The worker maps it
with a PROT_NONE page on either side; the parent maps it without. An array that is flush with a guard page is guarded to
the byte. Memory that is read-only for the worker is sent as a descriptor opened for reading, so that mprotect cannot
make the mapping writable.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import BadEnvironmentError

Edge = Literal["start", "end"]
"""The end of a block that is flush with a guard page."""

PAGE = mmap.PAGESIZE
_PROT_NONE = 0

MADE: set[int] = set()
"""Inodes of all blocks of this process, to recognize them among the open files of a worker."""


class SharedBlock:
    """`nbytes` of shared memory as a uint8 array `bytes`, initially zero, flush with the guard page at `edge`.

    `writable`: whether the worker may write; the parent always may. Raises MemoryError, or BadEnvironmentError if the
    session does not allow it.
    """

    def __init__(
        self, nbytes: int, edge: Edge = "end", descriptor: int | None = None, *, writable: bool = True
    ) -> None:
        inside = pages(nbytes) * PAGE
        self.nbytes = nbytes
        self.edge = edge
        self.writable = writable
        mine = descriptor is None
        self.descriptor = os.memfd_create("tritmark", os.MFD_CLOEXEC) if descriptor is None else descriptor
        try:
            if mine:
                MADE.add(os.fstat(self.descriptor).st_ino)
                os.ftruncate(self.descriptor, PAGE + inside + PAGE)
            access = mmap.PROT_READ | (mmap.PROT_WRITE if mine or writable else 0)
            mapping = mmap.mmap(self.descriptor, PAGE + inside + PAGE, prot=access)
            if mine and not writable:
                self._reopen()
        except OSError as error:
            self.close()
            if mine and error.errno not in {errno.ENOMEM, errno.ENOSPC, errno.EAGAIN}:
                raise BadEnvironmentError(
                    f"{nbytes} bytes of shared memory cannot be allocated: {error.strerror or error}",
                    next_step="raise the limits of open files and of a file's size: ulimit -n, ulimit -f",
                ) from error
            raise MemoryError(f"{nbytes} bytes of shared memory: {error.strerror or error}") from error
        start = PAGE if edge == "start" else PAGE + inside - nbytes
        whole = np.frombuffer(mapping, np.uint8)
        self.bytes: npt.NDArray[np.uint8] = whole[start : start + nbytes]
        if not mine:
            _protect(whole[:PAGE])
            _protect(whole[PAGE + inside :])
            self.close()

    def _reopen(self) -> None:
        """Replace the descriptor by one that is read-only."""
        reader = os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        os.close(self.descriptor)
        self.descriptor = reader

    def unload(self) -> None:
        """Unmap the block's pages from this process's memory. They stay in the file, and an access maps them again."""
        inside = self.bytes.ctypes.data // PAGE * PAGE
        libc = ctypes.CDLL(None, use_errno=True)
        libc.madvise(ctypes.c_void_p(inside), ctypes.c_size_t(pages(self.nbytes) * PAGE), mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Close the descriptor. The memory is freed with its last view."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        if getattr(self, "descriptor", -1) >= 0:
            self.close()


def pages(nbytes: int) -> int:
    """The number of pages for that many bytes; at least one."""
    return -(-max(1, nbytes) // PAGE)


def view(
    buffer: npt.NDArray[Any], offset: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None
) -> npt.NDArray[Any]:
    """An array within a flat uint8 array; it keeps the buffer alive."""
    made: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=buffer, offset=offset, strides=strides)
    return made


def _protect(page: npt.NDArray[np.uint8]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(page.ctypes.data), ctypes.c_size_t(page.nbytes), _PROT_NONE):
        code = ctypes.get_errno()
        raise OSError(code, f"mprotect: {errno.errorcode.get(code, code)}")
