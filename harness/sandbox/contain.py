"""Runs a command so that no process that it started outlives it."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_PARENT_DEATH_SIGNAL, _SUBREAPER = 1, 36


def contained(command: Sequence[str]) -> int:
    """Run the command, then end all processes that it left, detached ones too. Returns its exit status, 128 + N after
    signal N. SIGTERM ends it at once."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_SUBREAPER, 1, 0, 0, 0)  # orphans become children of this process
    child = os.fork()
    if child == 0:
        prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        os.execvp(command[0], [*command])
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    while True:
        ended, status = os.wait()
        if ended == child:
            break
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_all()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _end_all() -> None:
    """End all children. Those of a child that ends become children here, until none is left."""
    listed = Path("/proc/self/task", str(os.getpid()), "children")
    with suppress(FileNotFoundError, ChildProcessError):
        while True:
            for each in listed.read_text(encoding="ascii").split():
                os.kill(int(each), signal.SIGKILL)
            os.wait()
