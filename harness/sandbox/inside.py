"""What a judge in the sandbox keeps from the kernels that it judges: they run as the same user."""

from __future__ import annotations

import ctypes
import os

INSIDE = "TRITMARK_SANDBOX"
"""Environment variable that `sandboxed` sets for its command."""
_SET_DUMPABLE = 4


def inside() -> bool:
    """Whether this process runs in the sandbox."""
    return bool(os.environ.get(INSIDE))


def hide_memory() -> None:
    """In the sandbox, keep other processes of this user from the memory and the open files of this one, and of those
    that it forks. Without it, a kernel could write its own verdict into the judge."""
    if inside():
        _set_dumpable(0)


def show_memory() -> None:
    """Take `hide_memory` back, in a worker, whose process the judge examines."""
    if inside():
        _set_dumpable(1)


def _set_dumpable(value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
