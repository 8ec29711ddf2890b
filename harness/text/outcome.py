"""How a Record ended: headline, counts and exit status all come from here, so that they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tritmark.harness.record import Record, Status
from tritmark.harness.text import groups

FAILED = frozenset({Status.FAIL, Status.ERROR})


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """What counts: own Runs, each with the worst of its dimensions, layers, and figures. Kernels of other projects
    count in nothing but `figures` and `noisy`."""

    runs: Mapping[Status, int]
    layers: Mapping[Status, int]
    figures: int
    """Times that were taken and that no guard doubts, cold and hot ones."""
    noisy: int
    """Those of `figures` whose interval is wider than TOO_NOISY."""

    def count(self, *statuses: Status) -> int:
        """Runs and layers that ended so."""
        return sum(self.runs.get(each, 0) + self.layers.get(each, 0) for each in statuses)

    @property
    def empty(self) -> bool:
        """Whether there is nothing that could have been judged."""
        return not self.runs and not self.layers

    @property
    def failed(self) -> bool:
        """Whether a verdict is FAIL or ERROR."""
        return self.count(*FAILED) > 0

    @property
    def passed(self) -> bool:
        """Whether nothing failed, and there was something."""
        return not self.failed and not self.empty

    @property
    def status(self) -> Status:
        """FAIL where a verdict fails, AMBIGUOUS where one could not be decided, NOT RUN where nothing was judged."""
        if self.failed:
            return Status.FAIL
        return groups.worst(each for each in Status if self.count(each))


def outcome(record: Record) -> RecordOutcome:
    """How the Record ended."""
    figures = groups.figures(record.runs)
    return RecordOutcome(
        runs=Counter(groups.verdict(run) for run in record.own),
        layers=Counter(layer.status for layer in record.layers),
        figures=len(figures),
        noisy=sum(figure.footing.too_noisy for figure in figures),
    )


def deciding(own: Record, whole: Record) -> Record:
    """What a check of some kernels of `whole` is judged by: these, which `own` has, or all where anything failed."""
    return whole if outcome(whole).failed else own
