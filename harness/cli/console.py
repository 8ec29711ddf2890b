"""The consoles on which commands print. No other module makes one."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 200
"""Columns of a file or a pipe."""


def console(file: IO[str] | None = None, *, stderr: bool = False) -> Console:
    """A console on standard output, the error stream or `file`. It does not interpret markup.

    Tables that go to a file or a pipe are not folded at 80 columns.
    """
    from rich.console import Console

    stream = file or (sys.stderr if stderr else sys.stdout)
    wide = not stream.isatty() and (file is not None or "COLUMNS" not in os.environ)
    return Console(file=file, stderr=stderr, width=_WIDE if wide else None, markup=False, emoji=False, highlight=False)
