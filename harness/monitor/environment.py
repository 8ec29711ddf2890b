"""TRITMARK_MONITOR: watch a whole program without a change to it."""

from __future__ import annotations

import atexit
import os

from tritmark.harness.monitor.hook import VARIABLE
from tritmark.harness.monitor.session import MonitorSession


def begin() -> None:
    """Watch from now to the end of the program, unless the variable is "0" or empty."""
    asked = os.environ.get(VARIABLE, "").strip()
    if asked in {"", "0"}:
        return
    session = MonitorSession(database=None if asked == "1" else asked)
    session.__enter__()
    atexit.register(session.__exit__, None, None, None)
