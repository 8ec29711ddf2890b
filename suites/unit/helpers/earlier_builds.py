"""Modules for benchmarks that also run against earlier builds (suites/performance/compare.py --before)."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def module(*names: str) -> ModuleType:
    """The first module that this build has: its name today, and those that it had in earlier builds."""
    for name in names[:-1]:
        try:
            return import_module(name)
        except ModuleNotFoundError as why:
            if why.name is None or not f"{name}.".startswith(f"{why.name}."):
                raise
    return import_module(names[-1])
