"""Imported by the server that workers are forked from, before all else.

A process that ends while it asks the server for another one leaves half a request, which the server, or the process
that it had begun, meets as EOFError. Judges end so where a command is interrupted: nothing to tell.
"""

from __future__ import annotations

import sys
from types import TracebackType


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if kind is not EOFError:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _hook
