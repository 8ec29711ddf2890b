"""What a rule is, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.record import Fact, Gain


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule says about one Run. What every proposal has besides (commands, the ceiling, the cap) is added by
    `advise`."""

    evidence: tuple[Fact, ...]
    gain: Gain
    """As the rule's formula gives it: `advise` caps it at t/R and drops what the noise would hide."""
    edit: str
    """What to change, in words that name it."""


def _silent(evidence: Evidence) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One piece of advice: when it applies, and what following it should bring."""

    name: str
    """As `--explain` takes it: lower case, words joined by hyphens."""
    number: int
    """In the list of rules: 1 to 28; those for a profiler's counters begin at 29."""
    title: str
    """What is wrong, in one line, for the proposal's head."""
    needs: str
    """What has to have been measured or read for it to say anything, in words."""
    explanation: str
    """What it looks at, the formula, the source, and the thresholds with how they were found."""
    judge: Callable[[Evidence], Finding | None] = _silent
    """What it says about a Run, or None where it does not apply or what it needs is not there."""
    moot: Callable[[Evidence], bool] | None = None
    """Whether what it asks for is another kernel's business, so that `advise` leaves it out; the rule's score
    (suites/advise/score.py) asks `judge` alone."""
    forbids: Callable[[Evidence, Gain], str | None] | None = None
    """Of a guard, which gives no advice of its own: why this gain must not be promised for the Run, or None."""
