"""Cold calls wait for memory that a cache could have held."""

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
            Fact(name="bytes that a call touches", value=units.size(hot.footprint), source="performance.hot.footprint"),
            Fact(
                name="last cache",
                value=units.size(cache),
                source="machine.gpus: l2" if evidence.on_device else "machine.caches: L3",
            ),
        ),
        gain=found,
        edit="fetch the next call's weights ahead while this one computes, or keep them cached (persisting L2 lines, a "
        "loop over rows that reuses them); judge the kernel by its cold figure",
    )


def _cache(evidence: Evidence) -> int | None:
    if evidence.on_device:
        return max((gpu.l2 for gpu in evidence.machine.gpus), default=None)
    return evidence.machine.caches.get("L3")


RULE = Rule(
    name="cold",
    number=21,
    title="Cold, it waits for memory although the cache could hold its data",
    needs="cold and warm times, the last cache's size",
    explanation=f"""\
Looks at tc/t where the footprint fits the last cache: over {COLD} a caller that comes back to the same data, or knows
the next, waits in vain.
Formula: up to tc/t of the cold time, beginning at 1, since how much can be kept is the caller's. It speaks for the
fastest variant only, and the promise ends at t/R like every other. {COLD}: on the baselines kernels whose data no
cache holds have a tc/t of 0.8 to 1.2, so that more is the cache's doing.""",
    judge=_judge,
)
