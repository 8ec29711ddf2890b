"""Launches one by one take longer than in a graph."""

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
            Fact(name="launched one by one, over in a graph", value=units.times(plain), source="plain"),
            shared_facts.noise(evidence),
        ),
        gain=found,
        edit="record the calls that follow each other in a CUDA graph once (cuStreamBeginCapture), and replay it",
    )


RULE = Rule(
    name="graph",
    number=6,
    title="Launched one by one it leaves the device idle",
    needs="the time of plain launches over that in a graph (Run.plain), on a device",
    explanation="""\
Looks at the time of a call handed over one by one by Python over the time of the same in a CUDA graph, measured by
turns.
Formula: 1 to that ratio, where its lower end is above 1 + e: nothing for a caller who records graphs already. It
speaks for the fastest variant of a workload only. The warm time was taken in a graph already, so what is gained is
the caller's who launches one by one; the promise ends at t/R like every other. No threshold but the noise.""",
    judge=_judge,
)
