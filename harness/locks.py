"""File locks, if the file system supports them."""

from __future__ import annotations

import errno
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_WITHOUT = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP})
"""Errors of flock(2) on a file system without locks: Lustre without `flock`, some of FUSE, 9p and NFS."""
_LOG = logging.getLogger(__name__)


@contextmanager
def locked(path: Path, timeout_s: float = -1.0) -> Iterator[None]:
    """Hold the lock of that file; wait at most `timeout_s` seconds (-1: no limit). Raises filelock.Timeout, OSError.

    Without support of the file system, no lock is held, and a warning is logged. Files have private names until they
    are complete, so two processes that make the same file waste time and lose nothing.
    """
    from filelock import FileLock

    lock = FileLock(path, timeout=timeout_s)
    held = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # filelock warns about the same
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
    _LOG.warning("%s does not support file locks; next: run one command at a time there", folder)
