"""The ops and shapes that the history follows (suites/history/shapes.py), without what asv alone needs."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

SUITES = Path(__file__).parents[2]


def history_shapes() -> ModuleType:
    """The module, imported as asv does it: its package is `history`."""
    sys.path.insert(0, str(SUITES))
    try:
        return import_module("history.shapes")
    finally:
        sys.path.remove(str(SUITES))
