"""The consoles that commands print on: made here and nowhere else."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 200
"""Columns of what is nobody's window."""


def console(file: IO[str] | None = None, *, stderr: bool = False) -> Console:
    """On standard output, the error stream, or `file`. Text is shown as it is, whatever it looks like.

    Tables that go to a file or a pipe are not folded at 80 columns.
    """
    from rich.console import Console

    stream = file or (sys.stderr if stderr else sys.stdout)
    wide = not stream.isatty() and (file is not None or "COLUMNS" not in os.environ)
    return Console(file=file, stderr=stderr, width=_WIDE if wide else None, markup=False, emoji=False, highlight=False)
