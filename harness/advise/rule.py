"""Rule and Finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.record import Fact, Gain


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a rule for one Run. `advise` adds the commands and the ceiling."""

    evidence: tuple[Fact, ...]
    gain: Gain
    """The gain by the rule's formula. `advise` limits it to t/R and drops gains that the noise would hide."""
    edit: str
    """The change to make."""


def _silent(evidence: Evidence) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A kind of proposal: when it applies, and its predicted gain."""

    name: str
    """Name for `--explain`: lower case, words joined by hyphens."""
    number: int
    """Position in the list of rules; 29 to 40 are on a profiler's counters."""
    title: str
    """The problem in one line, as the title of the proposal."""
    needs: str
    """The evidence that the rule requires."""
    explanation: str
    """Condition, formula, source, and the origin of the thresholds."""
    figure: str = "hot"
    """The figure of a Run that shows the gain: hot or cold. "" if none does, because the gain is that of a caller; then
    no outcome is recorded."""
    judge: Callable[[Evidence], Finding | None] = _silent
    """The finding for a Run; None if the rule does not apply or evidence is missing."""
    moot: Callable[[Evidence], bool] | None = None
    """Whether another variant already implements the change, so that `advise` omits it. suites/advise/score.py calls
    `judge` only."""
    forbids: Callable[[Evidence, Gain], str | None] | None = None
    """For a guard, which makes no proposals: why this gain must not be predicted for the Run, or None."""
