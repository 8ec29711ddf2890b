"""Fewer blocks than multiprocessors."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact

WARP_LOAD = 512
"""Bytes that a warp loads at a time, 16 a thread."""


def _judge(evidence: Evidence) -> Finding | None:
    gpu = code_facts.gpu(evidence)
    launches = tuple(code_facts.ran(evidence))
    if gpu is None or not launches or not code_facts.far(evidence):
        return None
    # It is unknown which of several launches takes the time, so all must be small.
    most = max(launches, key=lambda each: each.blocks)
    if most.blocks >= gpu.sms or evidence.b < gpu.sms * WARP_LOAD:
        return None
    found = code_facts.promised(evidence, gpu.sms / most.blocks)
    return (
        None
        if found is None
        else Finding(
            evidence=(
                *most.facts,
                Fact(name="multiprocessors", value=str(gpu.sms), source="machine.gpus"),
                Fact(name="idle", value=f"{gpu.sms - most.blocks} of {gpu.sms}", source="the two above"),
                code_facts.distance(evidence),
            ),
            gain=found,
            edit="use several blocks or warps for each output (or row): split the reduction axis and add the partial "
            "sums, or use smaller tiles",
        )
    )


RULE = Rule(
    name="few-blocks",
    number=7,
    title="Fewer blocks than multiprocessors: some multiprocessors are idle",
    needs="a GPU, and the launches of the receipt",
    explanation=f"""\
Condition: the largest launch has fewer blocks than the GPU has multiprocessors, the time is far above the time of bytes
and operations, and there is at least one load of a warp ({WARP_LOAD} bytes) for each multiprocessor.
Formula: multiprocessors / blocks. The predicted gain is from {code_facts.REACHED} of the formula's gain above 1 to the
limit by bytes and operations. On the H200 baseline the rule applies only to the tiled product with one token (80 to 120
blocks on 132 multiprocessors); gemv_dp4a splits K there.""",
    judge=_judge,
)
