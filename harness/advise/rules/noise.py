"""A gain that the noise would hide is not predicted."""

from __future__ import annotations

from tritmark.harness.advise.evidence import LEAST_GAIN, Evidence
from tritmark.harness.advise.rule import Rule
from tritmark.harness.record import TOO_NOISY, Gain, Status


def _forbids(evidence: Evidence, gain: Gain) -> str | None:
    if evidence.run.performance.status is Status.AMBIGUOUS:
        return f"{evidence.run.performance.reason}; measure again on a quiet machine"
    if evidence.e > TOO_NOISY:
        return "the figures are too noisy to show any gain; measure again on a quiet machine"
    width = max(2 * evidence.e, LEAST_GAIN)
    if gain.high - 1 <= width:
        return (
            f"a gain of at most {100 * (gain.high - 1):.2f} % would hide in an interval {100 * width:.2f} % wide; "
            "measure again, for longer"
        )
    return None


RULE = Rule(
    name="noise",
    number=1,
    title="The noise exceeds the possible gain",
    needs="the 95 % intervals of the hot time and of the fraction of the ceiling",
    explanation="""\
e is half of the wider 95 % interval of the hot time and of the fraction of the ceiling, as a share.
Condition: the upper end of a gain is within the interval (2 e) or within 1 %, the Run is AMBIGUOUS, or e is over 25 %
(too noisy). Then no rule predicts that gain. Measure again, for longer, on a quieter machine.
Threshold of 1 %: the address of the code changes the time of a kernel by 0.1 to 0.4 %, and a dead band of 1 % gave 0
alarms in 300 comparisons of identical code (suites/gate/power.py).""",
    forbids=_forbids,
)
