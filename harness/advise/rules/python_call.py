"""Python and dispatch take a tenth of the time or more."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.text import units

SHARE = 0.1
BATCH = 8


def _judge(evidence: Evidence) -> Finding | None:
    overhead, t = evidence.run.performance.call_overhead_ns, evidence.t
    if overhead is None or overhead <= SHARE * t or not evidence.fastest:
        return None
    found = gain(1.0, BATCH * (t + overhead) / (BATCH * t + overhead))
    if found is None:
        return None
    return Finding(
        evidence=(
            shared_facts.warm(evidence),
            Fact(
                name="overhead of a call through Python",
                value=units.time(overhead),
                source="performance.call_overhead_ns",
            ),
            Fact(name="overhead / t", value=units.percent(overhead / t), source="the two above"),
        ),
        gain=found,
        edit=f"do the work of {BATCH} calls in one call (rows of a batch, a list of layers), bind "
        "arguments once and keep the bound call, and release the GIL around it",
    )


RULE = Rule(
    name="python-call",
    number=27,
    title="Python and dispatch take a large part of a call",
    needs="the overhead of a call through Python (performance.call_overhead_ns)",
    explanation=f"""\
Condition: the overhead o of a call through Python is more than {SHARE:.0%} of t.
Formula: 1 to n (t + o) / (n t + o) for n = {BATCH} calls in one; a caller that batches already gains nothing. Only for
the fastest variant of a workload: replace a slower one first. The gain is limited to t/R, as for every rule, so a
caller may gain more. Threshold {SHARE:.0%}: from the literature. On the baselines o is 0.3 us (host) to 14 us (GPU), so
kernels above 3 and 140 us are excluded.""",
    figure="",
    judge=_judge,
)
