"""Instruction sets of this checkout for x86-64, the architecture of the history."""

from __future__ import annotations

import runpy
from pathlib import Path

_TABLES = runpy.run_path(str(Path(__file__).parents[2] / "cython_ext" / "src" / "tables.py"))
ISAS: tuple[str, ...] = _TABLES["sets"]()[0]
"""In ascending order. A commit's own list is compiled into it, but parameters must be the same for all commits."""
