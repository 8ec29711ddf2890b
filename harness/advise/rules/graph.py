"""Individual launches take longer than launches in a graph."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.text import units


def _judge(evidence: Evidence) -> Finding | None:
    plain = evidence.run.plain
    if plain is None or not evidence.fastest or plain.low <= 1 + evidence.e:
        return None
    found = gain(1.0, plain.high)
    if found is None:
        return None
    return Finding(
        evidence=(
            shared_facts.warm(evidence),
            Fact(name="individual launches over a graph", value=units.times(plain), source="plain"),
            shared_facts.noise(evidence),
        ),
        gain=found,
        edit="capture consecutive calls in a CUDA graph once (cuStreamBeginCapture), and replay it",
    )


RULE = Rule(
    name="graph",
    number=6,
    title="Individual launches leave the device idle",
    needs="the time of individual launches over the time in a graph (Run.plain), on a device",
    explanation="""\
Condition: the time of calls launched individually from Python over the time in a CUDA graph, interleaved, is above
1 + e with its lower end.
Formula: 1 to that ratio; a caller that uses graphs already gains nothing. Only for the fastest variant of a workload.
The hot time was measured in a graph, so the gain is for callers with individual launches. It is limited to t/R, as for
every rule. Threshold: the noise.""",
    figure="",
    judge=_judge,
)
