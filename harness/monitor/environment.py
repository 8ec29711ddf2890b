"""TRITMARK_MONITOR: watch a whole program without a change to it."""

from __future__ import annotations

import atexit
import os

from tritmark.harness.monitor.hook import VARIABLE
from tritmark.harness.monitor.session import MonitorSession

ON = frozenset({"1", "true", "yes", "on"})
OFF = frozenset({"0", "false", "no", "off"})
"""Words that are no names of files."""


def begin() -> None:
    """Watch from now to the end of the program, unless the variable is empty or one of OFF."""
    asked = os.environ.get(VARIABLE, "").strip()
    word = asked.lower()
    if not word or word in OFF:
        return
    session = MonitorSession(database=None if word in ON else asked)
    session.__enter__()
    atexit.register(session.__exit__, None, None, None)
