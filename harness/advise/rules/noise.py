"""A gain that the noise would hide is not promised."""

from __future__ import annotations

from tritmark.harness.advise.evidence import LEAST_GAIN, Evidence
from tritmark.harness.advise.rule import Rule
from tritmark.harness.record import TOO_NOISY, Gain, Status


def _forbids(evidence: Evidence, gain: Gain) -> str | None:
    if evidence.run.performance.status is Status.AMBIGUOUS:
        return f"{evidence.run.performance.reason}; measure again on a quiet machine"
    if evidence.e > TOO_NOISY:
        return "the figures are too noisy for any gain to show in them; measure again on a quiet machine"
    width = max(2 * evidence.e, LEAST_GAIN)
    if gain.high - 1 <= width:
        return (
            f"a gain of {100 * (gain.high - 1):.2f} % at most would hide in an interval {100 * width:.2f} % wide; "
            "measure again, for longer"
        )
    return None


RULE = Rule(
    name="noise",
    number=1,
    title="The noise is wider than what could be gained",
    needs="the 95 % intervals of the warm time and of the fraction of the ceiling",
    explanation="""\
Looks at the 95 % intervals of the warm time and of the fraction of the ceiling; e is half the wider one, as a share.
No other rule's gain is told where its upper end is within the interval's width (2 e) or within 1 %, where the Run
could not be judged, or where e is over 25 %: then the figures are too noisy. The 1 % is what was measured: where the
compiler lays code moves a kernel by 0.1 to 0.4 %, and a dead band of 1 % kept alarms on identical code at 0 of 300
(suites/gate/power.py). Measure again, for longer, on a quieter machine.""",
    forbids=_forbids,
)
