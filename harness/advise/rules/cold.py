"""Cold calls wait for memory although the cache could hold the data."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.text import units

COLD = 1.5


def _judge(evidence: Evidence) -> Finding | None:
    hot, cold = evidence.run.performance.hot, evidence.run.performance.cold
    cache = _cache(evidence)
    if hot is None or cold is None or cache is None or not evidence.fastest or hot.footprint > cache:
        return None
    ratio = cold.timing.median_ns / hot.timing.median_ns
    if cold.timing.low_ns <= COLD * hot.timing.high_ns:
        return None
    found = gain(1.0, ratio)
    if found is None:
        return None
    return Finding(
        evidence=(
            Fact(name="cold time tc", value=units.time(evidence.tc), source="performance.cold.timing.median_ns"),
            shared_facts.warm(evidence),
            Fact(name="footprint", value=units.size(hot.footprint), source="performance.hot.footprint"),
            Fact(
                name="last-level cache",
                value=units.size(cache),
                source="machine.gpus: l2" if evidence.on_device else "machine.caches: L3",
            ),
        ),
        gain=found,
        edit="prefetch the next call's weights during this one, or keep them in the cache (persisting L2 lines, a "
        "loop over rows that reuses them); compare kernels by cold time",
    )


def _cache(evidence: Evidence) -> int | None:
    if evidence.on_device:
        return max((gpu.l2 for gpu in evidence.machine.gpus), default=None)
    return evidence.machine.caches.get("L3")


RULE = Rule(
    name="cold",
    number=21,
    title="Cold calls wait for memory although the cache could hold the data",
    needs="cold and hot times, the size of the last-level cache",
    explanation=f"""\
Condition: tc/t > {COLD}, and the footprint fits the last-level cache. A caller that reuses the data, or knows the next
data, can avoid the wait.
Formula: 1 to tc/t of the cold time; how much stays cached depends on the caller. Only for the fastest variant. The gain
is limited to t/R, as for every rule. Threshold {COLD}: on the baselines, kernels with data that fits no cache have tc/t
of 0.8 to 1.2.""",
    figure="cold",
    judge=_judge,
)
