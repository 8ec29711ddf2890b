"""The ledger: predictions of rules and their measured outcomes.

One JSON file to commit, `ledger.json` beside the Records. It is versioned and sorted, with one outcome per line, so
that branches that add outcomes merge.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from tritmark.harness.errors import RecordError
from tritmark.harness.locks import locked
from tritmark.harness.record import Gain
from tritmark.harness.record.model import Model
from tritmark.harness.store import write_atomically
from tritmark.harness.text.units import counted

VERSION = 1
NAME = "ledger.json"
GOAL = 0.7
"""Share of outcomes in the predicted interval from which a rule has full weight."""

UNTRIED = "no outcome yet"
"""The standing of a rule of which no prediction was compared with an outcome."""

_LEGAL = f"a ledger of version {VERSION}, as `tritmark` writes it"


class MeasuredGain(Model):
    """Measured old time over new time, with its 95 % interval. Unlike a predicted gain it may be below 1."""

    median: float
    low: float
    high: float


class LedgerEntry(Model):
    """One prediction and its outcome."""

    rule: str
    kernel: str
    workload: str
    threads: int
    machine: str
    """Id of the machine."""
    before: str
    """Id of the Record with the proposal."""
    after: str
    """Id of the later Record, or of the sibling variant in the same Record, that shows the outcome."""
    predicted: Gain
    measured: MeasuredGain
    change: str
    """The change that was made, quoted from the kernel's history, or "addressed" if a later Record states it. "" if the
    proposed change was not made: then the prediction counts as a miss."""

    @property
    def hit(self) -> bool:
        """The proposed change was made, and the measured gain is in the predicted interval."""
        return bool(self.change) and self.predicted.low <= self.measured.median <= self.predicted.high

    @property
    def key(self) -> tuple[str, ...]:
        """Outcomes of the same prediction have equal keys."""
        return self.rule, self.kernel, self.workload, f"{self.threads:05}", self.machine, self.before, self.after


@dataclass(frozen=True, slots=True)
class RuleStatistics:
    """Hits and misses of a rule."""

    hits: int
    misses: int
    bias: float | None
    """Median of measured gain / geometric mean of the predicted interval; None without outcomes."""

    @property
    def trials(self) -> int:
        return self.hits + self.misses

    @property
    def weight(self) -> float:
        """Factor on the rule's predicted saving in the order of proposals: min(1, (hits + 1) / (trials + 1) / GOAL).

        It is 1 for an untried rule, and counts the next trial as a hit.
        """
        return min(1.0, (self.hits + 1) / (self.trials + 1) / GOAL)

    def __str__(self) -> str:
        if not self.trials:
            return UNTRIED
        words = f"{self.hits} of {counted(self.trials, 'prediction')} correct, measured over predicted {self.bias:.2f}"
        return words if self.weight == 1 else f"{words}, ranked down to {self.weight:.2f}"


@dataclass(frozen=True, slots=True)
class Ledger:
    """All outcomes, one for each prediction."""

    outcomes: tuple[LedgerEntry, ...] = ()

    def __post_init__(self) -> None:
        kept = {outcome.key: outcome for outcome in self.outcomes}
        object.__setattr__(self, "outcomes", tuple(kept[key] for key in sorted(kept)))

    def with_(self, more: Iterable[LedgerEntry]) -> Ledger:
        """This ledger with more outcomes. An outcome of the same prediction replaces the earlier one."""
        return Ledger((*self.outcomes, *more))

    def standing(self, rule: str) -> RuleStatistics:
        """The statistics of a rule."""
        own = [outcome for outcome in self.outcomes if outcome.rule == rule]
        hits = sum(outcome.hit for outcome in own)
        offsets = [log(each.measured.median / sqrt(each.predicted.low * each.predicted.high)) for each in own]
        return RuleStatistics(hits, len(own) - hits, exp(median(offsets)) if offsets else None)

    def weights(self) -> Mapping[str, float]:
        """The weight of each tried rule; see RuleStatistics.weight."""
        return {rule: self.standing(rule).weight for rule in sorted({outcome.rule for outcome in self.outcomes})}

    def summaries(self) -> Mapping[str, str]:
        """The statistics of each tried rule as text."""
        return {rule: str(self.standing(rule)) for rule in sorted({outcome.rule for outcome in self.outcomes})}


def read(path: Path) -> Ledger:
    """The ledger in a file; empty if there is no file. Raises RecordError for a corrupt file or a newer version."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Ledger()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(path=str(path), found=str(error), legal=_LEGAL) from error
    try:
        held = json.loads(text)
        if not isinstance(held, dict) or held.get("version") != VERSION or not isinstance(held.get("outcomes"), list):
            version = held.get("version") if isinstance(held, dict) else None
            raise RecordError(path=str(path), found=f"version {version!r}", legal=_LEGAL)
        return Ledger(tuple(LedgerEntry.model_validate(each) for each in held["outcomes"]))
    except (json.JSONDecodeError, ValidationError) as error:
        raise RecordError(path=str(path), found=str(error).splitlines()[0], legal=_LEGAL) from error


def text(ledger: Ledger) -> str:
    """The text of the file, with one outcome per line."""
    lines = ",\n".join(f"  {outcome.model_dump_json()}" for outcome in ledger.outcomes)
    return (
        f'{{\n "version": {VERSION},\n "outcomes": [\n{lines}\n ]\n}}\n'
        if lines
        else f'{{\n "version": {VERSION},\n "outcomes": []\n}}\n'
    )


def add(path: Path, outcomes: Iterable[LedgerEntry]) -> Ledger:
    """Add outcomes to the ledger in a file and return the whole ledger. Concurrent calls are safe.

    Raises RecordError or UsageError, and then does not change the file.
    """
    aside = path.parent / "runs"  # a folder that is not committed
    aside.mkdir(parents=True, exist_ok=True)
    with locked(aside / f".{path.name}.lock"):
        ledger = read(path).with_(outcomes)
        write_atomically(path, text(ledger))
    return ledger
