"""A command that ends with its parent: python -m tritmark.harness.fleet.orphan PARENT COMMAND...

A killed worker cannot end its job. Left alone, the job would go on timing beside the next one on that machine.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Run `tritmark COMMAND...` in this process."""
    parent, *words = sys.argv[1:]
    ctypes.CDLL(None, use_errno=True).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # it died before
        sys.exit(1)
    sys.argv[1:] = words
    runpy.run_module("tritmark", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
