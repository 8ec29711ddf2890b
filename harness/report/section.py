"""What a part of the report is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tritmark.harness.record import Record


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """A lasting change of a kernel's speed, as the history of commits shows it."""

    benchmark: str
    first: str
    """The last commit before it."""
    last: str
    """The first commit after it."""
    ratio: float
    """The time after it over the time before."""
    confidence: float | None = None
    """From 0 to 1; None where the method gives none."""
    reverted: bool = False


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """A kernel's time at each commit, over that of a pinned build."""

    benchmark: str
    commits: tuple[str, ...]
    """The oldest first."""
    ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class History:
    """What the commits of a project did to its kernels' speed on this machine."""

    lines: tuple[HistoryLine, ...]
    steps: tuple[SpeedChange, ...]


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a page shows beside its Record; each is optional."""

    baseline: Record | None = None
    """An earlier Record to compare with."""
    history: History | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    """For each rule of the proposals: how often its predictions came true, in words."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """For each rule that was tried how much of what it predicts counts in the order of the proposals; 1 for one that
    only `rules` has."""
    path: str = ""
    """Where the Record lies."""
    distrust: str = ""
    """What refutes the Record or its baseline, for the head of the page; "" where nothing does."""
    room: int = 0
    """Bytes that are left for raw samples."""

    def weighed(self) -> Mapping[str, float]:
        """The weight of every rule that was tried."""
        return {**dict.fromkeys(self.rules, 1.0), **self.weights}


NOTHING = PageContext()


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page, under a heading of its own.

    `context(record)` gives the variables of `templates/<template>`, or None where the Record has nothing for this
    section, which then does not appear; a section that shows more than the Record has `beside(record, given)` instead.
    Text in the context may be hostile: the page escapes it. `id` is the anchor.
    """

    id: str
    title: str
    template: str
    context: Callable[[Record], dict[str, Any] | None] | None = None
    beside: Callable[[Record, PageContext], dict[str, Any] | None] | None = None
    about: str = ""
    """What a folded section shows, in a phrase beside its title; "" for one that stands open."""

    def variables(self, record: Record, given: PageContext = NOTHING) -> dict[str, Any] | None:
        """The variables of the template, or None where there is nothing to show."""
        if self.beside is not None:
            return self.beside(record, given)
        return None if self.context is None else self.context(record)
