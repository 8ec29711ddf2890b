"""A time below the physical floor is invalid, not fast."""

from __future__ import annotations

from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Rule
from tritmark.harness.record import Gain


def _forbids(evidence: Evidence, gain: Gain) -> str | None:
    if evidence.run.performance.failed:
        return f"the time is invalid: {evidence.run.performance.reason}"
    assert evidence.run.performance.hot is not None
    fraction = evidence.run.performance.hot.against.fraction
    if fraction.low > 1:
        return (
            f"the hot time is under the least time, {100 * fraction.median:.1f} % of the ceiling: the ceiling or "
            "the time is incorrect"
        )
    return None


RULE = Rule(
    name="floor",
    number=2,
    title="Faster than the machine allows",
    needs="the fraction of the ceiling, interleaved with the kernel",
    explanation="""\
Condition: the lower end of the 95 % interval of least time / t is above 1, or the performance of the Run failed. The
least time follows from b/BW and ops/P, with rates that are interleaved with the kernel on the same footprint.
Such a result is invalid: work was left out, or the measured ceiling is too low. No other rule then predicts a gain.
Threshold: 1.""",
    forbids=_forbids,
)
