"""The outcome of a Record. Headline, counts and exit status use it, so that they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tritmark.harness.record import Record, Status
from tritmark.harness.text import groups

FAILED = frozenset({Status.FAIL, Status.ERROR})


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """Counts of own Runs by their worst dimension, of layers, and of figures. Peers count only in `figures` and
    `noisy`."""

    runs: Mapping[Status, int]
    layers: Mapping[Status, int]
    figures: int
    """Cold and hot times that no guard doubts."""
    noisy: int
    """Those of `figures` whose interval is wider than TOO_NOISY."""

    def count(self, *statuses: Status) -> int:
        """The number of Runs and layers with these statuses."""
        return sum(self.runs.get(each, 0) + self.layers.get(each, 0) for each in statuses)

    @property
    def empty(self) -> bool:
        """Whether the Record has neither Runs nor layers."""
        return not self.runs and not self.layers

    @property
    def failed(self) -> bool:
        """Whether a verdict is FAIL or ERROR."""
        return self.count(*FAILED) > 0

    @property
    def passed(self) -> bool:
        """Whether nothing failed, and the Record is not empty."""
        return not self.failed and not self.empty

    @property
    def status(self) -> Status:
        """FAIL if a verdict is FAIL or ERROR, else AMBIGUOUS if one is, else PASS; NOT RUN if nothing was judged."""
        if self.failed:
            return Status.FAIL
        return groups.worst(each for each in Status if self.count(each))


def outcome(record: Record) -> RecordOutcome:
    """The outcome of the Record."""
    figures = groups.figures(record.runs)
    return RecordOutcome(
        runs=Counter(groups.verdict(run) for run in record.own),
        layers=Counter(layer.status for layer in record.layers),
        figures=len(figures),
        noisy=sum(figure.footing.too_noisy for figure in figures),
    )


def deciding(own: Record, whole: Record) -> Record:
    """The Record that decides about a check: `own`, which has the user's kernels, or `whole` if anything failed."""
    return whole if outcome(whole).failed else own
