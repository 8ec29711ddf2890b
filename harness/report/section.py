"""Section, a part of the report, and the context that sections show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tritmark.harness.models import ModelResult
from tritmark.harness.record import Record


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """A lasting change of a kernel's speed in the history of commits."""

    benchmark: str
    first: str
    """The last commit before the change."""
    last: str
    """The first commit after the change."""
    ratio: float
    """Time after the change over the time before."""
    confidence: float | None = None
    """From 0 to 1; None if the method gives none."""
    reverted: bool = False


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """A kernel's time at each commit over the time of the anchor."""

    benchmark: str
    commits: tuple[str, ...]
    """The oldest first."""
    ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Effect of a project's commits on the speed of its kernels on this machine."""

    lines: tuple[HistoryLine, ...]
    steps: tuple[SpeedChange, ...]


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a page shows beside its Record. All fields are optional."""

    baseline: Record | None = None
    """An earlier Record to compare with."""
    no_baseline: str = ""
    """Why there is none."""
    history: History | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    """For each rule of the proposals, how often its predictions came true, as text."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """For each tried rule, the factor on its predicted saving in the order of the proposals; 1 for a rule that is only
    in `rules`."""
    models: Sequence[ModelResult] = ()
    """Results of `tritmark model` on the machine of the Record."""
    unread_models: Sequence[str] = ()
    """Files beside them that cannot be read."""
    path: str = ""
    """Path of the Record."""
    distrust: str = ""
    """What contradicts the Record or its baseline, for the head of the page; "" for nothing."""
    room: int = 0
    """Bytes left for raw samples."""

    def weighed(self) -> Mapping[str, float]:
        """The weight of each tried rule."""
        return {**dict.fromkeys(self.rules, 1.0), **self.weights}


NOTHING = PageContext()


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page with its own heading. `id` is its anchor.

    `context(record)` returns the variables of `templates/<template>`, or None to omit the section. A section that shows
    more than the Record has `beside(record, given)` instead. Text in the context may be hostile: the page escapes it.
    """

    id: str
    title: str
    template: str
    context: Callable[[Record], dict[str, Any] | None] | None = None
    beside: Callable[[Record, PageContext], dict[str, Any] | None] | None = None
    about: str = ""
    """Contents of a folded section, as a phrase beside its title; "" for a section that is open."""

    def variables(self, record: Record, given: PageContext = NOTHING) -> dict[str, Any] | None:
        """The variables of the template, or None to omit the section."""
        if self.beside is not None:
            return self.beside(record, given)
        return None if self.context is None else self.context(record)
