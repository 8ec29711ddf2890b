"""Whether the system clock was set while a command ran."""

from __future__ import annotations

import logging
import time

_LEAST_S = 1.0
"""Corrections of a running clock (NTP) are slower: 0.5 ms per second."""
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that cannot be set, and that goes on while the machine sleeps."""
_LOG = logging.getLogger(__name__)


class SystemClock:
    """The system clock beside a steady clock, from now on. All times are measured by the steady clock; the system clock
    gives Records their dates, ids and order."""

    def __init__(self) -> None:
        self._offset_s = _offset_s()
        self.warned = False

    def warn_if_set(self) -> None:
        """Log a warning, once, if the clock was set by more than a second."""
        by = _offset_s() - self._offset_s
        if abs(by) <= _LEAST_S or self.warned:
            return
        self.warned = True
        _LOG.warning(
            "the system clock was set by %+.0f s during this run: times are right, since another clock measures them, "
            "but the date and the order of this Record may be wrong; next: synchronize the clock (NTP)",
            by,
        )


def _offset_s() -> float:
    return time.time() - time.clock_gettime(_STEADY)
