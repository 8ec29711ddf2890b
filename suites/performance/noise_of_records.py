"""Noise of Records: figures that are too noisy to compare, and contradictions between ceilings.

    python suites/performance/noise_of_records.py results/baselines

takes files and folders, and prints a line for each Record and one for all. It is the source of the limits in
record/model.py and record/contradictions.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from tritmark.harness.record import CeilingFacts, contradictions
from tritmark.harness.store import read
from tritmark.harness.text.outcome import outcome

_LEVELS = ("L2", "L3", "memory")


def farther(ceilings: Sequence[CeilingFacts]) -> float:
    """The largest ratio of a level's rate to the rate of a nearer level."""
    return max(
        (
            far.rate / near.rate
            for a, b in combinations(ceilings, 2)
            for near, far in [sorted((a, b), key=_place)]
            if _place(near) < _place(far) and (a.device, a.name, a.threads) == (b.device, b.name, b.threads)
        ),
        default=0.0,
    )


def writes(ceilings: Sequence[CeilingFacts]) -> float:
    """The largest ratio of write rate to read rate of one level."""
    return max(
        (
            write.rate / read.rate
            for write in ceilings
            for read in ceilings
            if (write.name, read.name) == ("write", "read")
            and (write.device, write.level, write.threads) == (read.device, read.level, read.threads)
        ),
        default=0.0,
    )


def _place(ceiling: CeilingFacts) -> int:
    return _LEVELS.index(ceiling.level)


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one Record."""

    name: str
    figures: int
    noisy: int
    farther: float
    writes: float
    contradictions: int

    def __str__(self) -> str:
        counts = f"{self.name:<44} {self.figures:>8} {self.noisy:>9}"
        return f"{counts} {self.farther:>8.2f} {self.writes:>10.2f} {self.contradictions:>14}"


def row(path: Path) -> Row:
    """The row of the Record in that file."""
    record = read(path)
    ended = outcome(record)
    moved = [each for each in record.machine.ceilings if each.level in _LEVELS and each.unit == "bytes/s"]
    wrong = len(contradictions(record.machine.ceilings))
    return Row(path.name, ended.figures, ended.noisy, farther(moved), writes(moved), wrong)


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    given = [Path(each) for each in arguments or ["results/baselines"]]
    rows = [row(path) for each in given for path in (sorted(each.rglob("*.json")) if each.is_dir() else [each])]
    print(f"{'Record':<44} {'figures':>8} {'too noisy':>9} {'far/near':>8} {'write/read':>10} {'contradictions':>14}")
    for each in rows:
        print(each)
    print(
        Row(
            "all",
            sum(each.figures for each in rows),
            sum(each.noisy for each in rows),
            max((each.farther for each in rows), default=0.0),
            max((each.writes for each in rows), default=0.0),
            sum(each.contradictions for each in rows),
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
