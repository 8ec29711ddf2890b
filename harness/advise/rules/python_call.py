"""Python and dispatch take a tenth of the time."""

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
                name="what a call through Python adds",
                value=units.time(overhead),
                source="performance.call_overhead_ns",
            ),
            Fact(name="of t", value=units.percent(overhead / t), source="the two above"),
        ),
        gain=found,
        edit=f"hand over {BATCH} calls' work in one call (rows of a batch, a list of layers), bind "
        "arguments once and keep the bound call, and release the GIL around it",
    )


RULE = Rule(
    name="python-call",
    number=27,
    title="Python and dispatch take a large part of a call",
    needs="the time that a call through Python adds (performance.call_overhead_ns)",
    explanation=f"""\
Looks at what a call through Python adds to the native one, against t: over {SHARE:.0%} batching pays.
Formula: 1 to n (t + o) / (n t + o) for n = {BATCH} calls in one: nothing for a caller who batches already. It speaks
for the fastest variant of a workload only: a slower one is to be replaced first. What is gained is the caller's; the
promise ends at t/R like every other, so a caller may gain more. The {SHARE:.0%} is the literature's; on the
baselines calls add 0.3 us (host) to 14 us (GPU), so that it separates kernels of more than 3 and 140 us.""",
    judge=_judge,
)
