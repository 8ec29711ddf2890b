"""Locks of files, where the file system has locks."""

from __future__ import annotations

import errno
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_WITHOUT = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP})
"""What flock(2) answers where a file system has no locks: Lustre without `flock`, some of FUSE, 9p and NFS."""
_LOG = logging.getLogger(__name__)


@contextmanager
def locked(path: Path, timeout_s: float = -1.0) -> Iterator[None]:
    """Hold the lock of that file, waiting at most so long (-1: without end). Raises filelock.Timeout, OSError.

    Where the file system has no locks nothing is held, which is logged: what is made there has a private name until it
    is whole, so two that make the same waste time and lose nothing.
    """
    from filelock import FileLock

    lock = FileLock(path, timeout=timeout_s)
    held = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # filelock's own, of the same
            lock.acquire()
    except NotImplementedError:  # before filelock 3.20
        held = False
    except OSError as error:
        if error.errno not in _WITHOUT:
            raise
        held = False
    if not held:
        _without(path.parent)
    try:
        yield
    finally:
        if held:
            lock.release()


@cache
def _without(folder: Path) -> None:
    _LOG.warning("%s has no file locks; next: let one command at a time work there", folder)
