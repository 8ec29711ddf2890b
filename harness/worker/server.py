"""Hides EOFError in the server that workers are forked from. Imported first.

A process that ends while it requests another one leaves half a request, and the server or the new process raises
EOFError. Judges end so when a command is interrupted, so it is not reported.
"""

from __future__ import annotations

import sys
from types import TracebackType


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if kind is not EOFError:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _hook
