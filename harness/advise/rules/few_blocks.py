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
    # With several launches nobody knows which takes the time: all must be small.
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
            edit="give each output (or row) to several blocks or warps: split the reduction axis and add up the parts, "
            "or take smaller tiles",
        )
    )


RULE = Rule(
    name="few-blocks",
    number=7,
    title="Fewer blocks than multiprocessors: some of them have nothing to do",
    needs="a GPU, and the launches of the receipt",
    explanation=f"""\
Looks at the blocks of the largest launch and at the GPU's multiprocessors, where the time lies far above that of its
bytes and operations, and where each multiprocessor would have at least one load of a warp ({WARP_LOAD} bytes): less is
not worth splitting.
Formula: 1 / (1 - p) with p = 1 - blocks / multiprocessors, which is multiprocessors / blocks; promised from
{code_facts.REACHED} of what it adds to 1 to what bytes and operations allow. On the H200 baseline it fires on the
tiled product with one token (80 to 120 blocks on 132 multiprocessors), where gemv_dp4a splits K, and on nothing
else.""",
    judge=_judge,
)
