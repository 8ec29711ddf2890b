"""Memory that parent and worker share, between two pages that trap.

A block is an anonymous file (memfd): it has no name, so nothing is left behind whatever becomes of the processes. The
worker maps it with PROT_NONE pages on both sides; the parent's own mapping has none. What lies flush against such a
page is guarded to the byte. Memory that the worker may not write goes there as a descriptor that was opened for reading
only, so that no mprotect makes its mapping writable.
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
"""Which end of a block lies against a page that traps."""

PAGE = mmap.PAGESIZE
_PROT_NONE = 0

MADE: set[int] = set()
"""Inodes of all blocks that this process made, by which they are known among what another process has open."""


class SharedBlock:
    """`nbytes` of shared memory as a uint8 array `bytes`, zero at first, flush against the page before it or the page
    after it.

    `writable`: whether the worker may write there; the parent always may.
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
                    f"{nbytes} bytes of shared memory cannot be made: {error.strerror or error}",
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
        """Take a descriptor for reading only in place of the one that can write."""
        reader = os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        os.close(self.descriptor)
        self.descriptor = reader

    def unload(self) -> None:
        """Take the block's pages out of this process's memory; they stay in the file, and come back when they are
        looked at."""
        inside = self.bytes.ctypes.data // PAGE * PAGE
        libc = ctypes.CDLL(None, use_errno=True)
        libc.madvise(ctypes.c_void_p(inside), ctypes.c_size_t(pages(self.nbytes) * PAGE), mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Let go of the descriptor; the memory goes when the last view of it is gone."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        if getattr(self, "descriptor", -1) >= 0:
            self.close()


def pages(nbytes: int) -> int:
    """How many pages hold that many bytes; at least one."""
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
