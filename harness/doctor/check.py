"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The state of the checked item."""

    OK = "ok"
    ABSENT = "absent"
    """Missing, and a default run does not need it."""
    BETTER = "could be better"
    """A default run gives results, with more noise or less speed than possible on this machine."""
    MEND = "mend"
    """A default run fails, leaves out a present device, or gives AMBIGUOUS figures."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of `tritmark doctor`."""

    name: str
    state: State
    found: str
    means: str
    mend: str = ""
    """The fix; "" if nothing is to be done."""
    traceback: str = ""
    """The traceback of a failed package."""
