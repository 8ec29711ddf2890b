"""Instruction sets of this checkout for x86-64, the architecture of the history."""

from __future__ import annotations

import re
from pathlib import Path

_LINE = re.compile(r"^#define TM_ISA_(\w+)[\s\\]+(\d+),", re.M)
_LIST = (Path(__file__).parents[2] / "cython_ext" / "src" / "isas.h").read_text(encoding="utf-8")
_HERE = set(re.findall(r"X\(op, (\w+)\)", re.sub(r"TM_AARCH64\(.*\)", "", _LIST)))
ISAS = tuple(
    sorted(ranks := {name: int(rank) for name, rank in _LINE.findall(_LIST) if name in _HERE}, key=ranks.__getitem__)
)
"""In ascending order. A commit's own list is compiled into it, but parameters must be the same for all commits."""
