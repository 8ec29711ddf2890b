"""Steps in a series of ratios, with their confidence and later reverts.

The method is asv's step detection (piecewise constant fits in L1), without rises below 3 %. `python
suites/gate/histories.py` compares it with Apache Otava at p = 0.001 on synthetic histories. On ratios both found every
step of 5 % without a false alarm. asv is used because it stores the history; apache-otava 0.8 pins numpy to 2.2.0 and
depends on clients of BigQuery, PostgreSQL and Slack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log

from tritmark.harness.errors import UsageError
from tritmark.harness.extras import install

THRESHOLD = 0.03
"""Least step that counts. The address of a kernel alone changes its time by 0.1 to 0.4 %, and launches of one build
differ by more."""

LEAST_LENGTH = 2
"""Least number of commits of a level, so that one bad measurement is not a step."""


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of level between two adjacent values of a series, given by their positions."""

    before: int
    """Last position of the old level."""
    after: int
    """First position of the new one."""
    old: float
    new: float
    confidence: float
    """1 minus the probability that the noise within the levels causes such a step; see `_confidence`."""
    reverted: int | None
    """First position at the old level or below; None if the step stands."""

    @property
    def size(self) -> float:
        """Relative rise from the old level to the new one: 0.05 is 5 %."""
        return self.new / self.old - 1


def missing_asv() -> UsageError:
    """The error for a missing asv."""
    return UsageError(f"asv, which stores the history, is not installed; next: {install('history')}")


def rises(values: Sequence[float], threshold: float = THRESHOLD) -> list[LevelChange]:
    """The upward steps of more than `threshold` in positive values, the oldest first. Raises UsageError without asv."""
    try:
        from asv.step_detect import detect_steps
    except ImportError as why:
        raise missing_asv() from why
    if len(values) < 2 * LEAST_LENGTH:
        return []
    logs = [log(value) for value in values]
    levels = [(left, right, level) for left, right, level, _, _ in detect_steps(logs)]
    least = log(1 + threshold)
    steady = [each for each in levels if each[1] - each[0] >= LEAST_LENGTH]
    found: list[LevelChange] = []
    base = steady[0] if steady else (0, 0, 0.0)
    for last, (start, end, new) in pairwise(steady):
        if new - base[2] <= least:
            base = min(base, (start, end, new), key=lambda level: level[2])
            continue
        # Small rises that add up to a step count from the level where they began, a large rise from the level before.
        left, right, old = last if new - last[2] > least else base
        base = (start, end, new)
        back = next((later[0] for later in steady if later[0] >= end and later[2] - old <= least), None)
        sure = _confidence(logs, levels, (left, right), (start, end))
        found.append(LevelChange(right - 1, start, exp(old), exp(new), sure, back))
    return found


def _confidence(
    logs: Sequence[float], levels: Sequence[tuple[int, int, float]], old: tuple[int, int], new: tuple[int, int]
) -> float:
    """Student's t of the difference of the levels' means, with the pooled spread within all levels."""
    from math import sqrt
    from statistics import fmean

    from scipy.stats import t

    left, right = logs[slice(*old)], logs[slice(*new)]
    rest = [value - fmean(logs[start:end]) for start, end, _ in levels for value in logs[start:end]]
    free = len(rest) - len(levels)
    spread = sqrt(sum(each * each for each in rest) / free) if free > 0 else 0.0
    if not spread:
        return 1.0 if free > 0 else 0.0
    difference = fmean(right) - fmean(left)
    return float(1 - t.sf(difference / (spread * sqrt(1 / len(left) + 1 / len(right))), free))
