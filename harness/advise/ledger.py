"""The ledger: what rules promised, and what came of it.

One JSON file, `ledger.json` beside the Records, made to be committed: versioned, sorted, one outcome a line, so that
two branches that add outcomes merge.
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

VERSION = 1
NAME = "ledger.json"
GOAL = 0.7
"""The share of outcomes inside the predicted interval from which on a rule is believed as it is."""

_LEGAL = f"a ledger of version {VERSION}, as `tritmark` writes it"


class MeasuredGain(Model):
    """How many times as fast the kernel was afterwards, with its 95 % interval. Unlike a predicted gain it may be
    under 1."""

    median: float
    low: float
    high: float


class LedgerEntry(Model):
    """One promise and what came of it."""

    rule: str
    kernel: str
    workload: str
    threads: int
    machine: str
    """The machine's id."""
    before: str
    """Id of the Record with the proposal."""
    after: str
    """What followed it: the id of a later Record, or the id of the sibling variant in the same Record."""
    predicted: Gain
    measured: MeasuredGain
    change: str
    """What was done, quoted from the kernel's story, or "addressed" where a later Record says so; "" where nothing
    that the rule names was done: the promise then counts as missed, whatever was measured."""

    @property
    def hit(self) -> bool:
        """What the rule names was done, and the measured gain lies in the predicted interval."""
        return bool(self.change) and self.predicted.low <= self.measured.median <= self.predicted.high

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two outcomes the same promise."""
        return self.rule, self.kernel, self.workload, f"{self.threads:05}", self.machine, self.before, self.after


@dataclass(frozen=True, slots=True)
class RuleStatistics:
    """A rule's record."""

    hits: int
    misses: int
    bias: float | None
    """Median of the measured gain over the middle of the predicted interval (its geometric mean); None without
    outcomes."""

    @property
    def trials(self) -> int:
        return self.hits + self.misses

    @property
    def weight(self) -> float:
        """How much of the rule's lower bound counts in the order of proposals: 1 for a rule that was never tried, or
        kept its promise in GOAL of its trials; below that in proportion, the next trial taken for a hit: (hits + 1)
        / (trials + 1) / GOAL."""
        return min(1.0, (self.hits + 1) / (self.trials + 1) / GOAL)

    def __str__(self) -> str:
        if not self.trials:
            return "never tried"
        words = f"{self.hits} of {self.trials} promises kept, measured over predicted {self.bias:.2f}"
        return words if self.weight == 1 else f"{words}, ranked down to {self.weight:.2f}"


@dataclass(frozen=True, slots=True)
class Ledger:
    """All outcomes, each promise once."""

    outcomes: tuple[LedgerEntry, ...] = ()

    def __post_init__(self) -> None:
        kept = {outcome.key: outcome for outcome in self.outcomes}
        object.__setattr__(self, "outcomes", tuple(kept[key] for key in sorted(kept)))

    def with_(self, more: Iterable[LedgerEntry]) -> Ledger:
        """This ledger and more outcomes; one about the same promise takes the earlier one's place."""
        return Ledger((*self.outcomes, *more))

    def standing(self, rule: str) -> RuleStatistics:
        """The record of a rule."""
        own = [outcome for outcome in self.outcomes if outcome.rule == rule]
        hits = sum(outcome.hit for outcome in own)
        offsets = [log(each.measured.median / sqrt(each.predicted.low * each.predicted.high)) for each in own]
        return RuleStatistics(hits, len(own) - hits, exp(median(offsets)) if offsets else None)

    def weights(self) -> Mapping[str, float]:
        """For each rule that was tried how much its lower bound counts; see Standing.weight."""
        return {rule: self.standing(rule).weight for rule in sorted({outcome.rule for outcome in self.outcomes})}

    def summaries(self) -> Mapping[str, str]:
        """For each rule that was tried its record in words."""
        return {rule: str(self.standing(rule)) for rule in sorted({outcome.rule for outcome in self.outcomes})}


def read(path: Path) -> Ledger:
    """The ledger in a file; an empty one where there is no file. Raises RecordError for one that is corrupt or of a
    newer version."""
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
    """The file's text: one outcome a line."""
    lines = ",\n".join(f"  {outcome.model_dump_json()}" for outcome in ledger.outcomes)
    return (
        f'{{\n "version": {VERSION},\n "outcomes": [\n{lines}\n ]\n}}\n'
        if lines
        else f'{{\n "version": {VERSION},\n "outcomes": []\n}}\n'
    )


def add(path: Path, outcomes: Iterable[LedgerEntry]) -> Ledger:
    """Put outcomes into the file's ledger and give all of it; others may do so at the same time. Raises RecordError,
    UsageError; the file then stays as it is."""
    aside = path.parent / "runs"  # which is not committed
    aside.mkdir(parents=True, exist_ok=True)
    with locked(aside / f".{path.name}.lock"):
        ledger = read(path).with_(outcomes)
        write_atomically(path, text(ledger))
    return ledger
