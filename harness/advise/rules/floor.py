"""A time under the physical floor is an invalid result, not a fast one."""

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
            f"the warm time is under the least time, {100 * fraction.median:.1f} % of the ceiling: the ceiling or "
            "the time is wrong"
        )
    return None


RULE = Rule(
    name="floor",
    number=2,
    title="Faster than the machine can be",
    needs="the fraction of the ceiling, measured by turns with the kernel",
    explanation="""\
Looks at t against b/BW and ops/P, each rate measured by turns with the kernel on the same footprint: where even the
lower end of the 95 % interval of least time over time is above 1, or the Run's performance failed, the result is
invalid, not fast: work was left out, or the ceiling was measured too low. No other rule then promises anything. No
threshold but 1.""",
    forbids=_forbids,
)
