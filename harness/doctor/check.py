"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How things stand."""

    OK = "ok"
    ABSENT = "absent"
    """Not here, and a default run does without it."""
    BETTER = "could be better"
    """A default run gives results, with more noise or less speed than this machine could."""
    MEND = "mend"
    """A default run fails, leaves out a device that is here, or gives figures that it calls ambiguous itself."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of what the doctor says."""

    name: str
    state: State
    found: str
    means: str
    mend: str = ""
    """What to do about it; "" where there is nothing to do."""
    traceback: str = ""
    """Where it failed, of what another package brings."""
