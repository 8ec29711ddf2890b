"""Each pass of the loop waits for the previous one."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact

OVER = 1.5


def _judge(evidence: Evidence) -> Finding | None:
    if evidence.on_device or evidence.code is None or not evidence.code.functions or not code_facts.far(evidence):
        return None
    function = evidence.code.functions[0]
    chain, throughput = function.chain_cycles, function.throughput_cycles
    if chain is None or not throughput or chain <= OVER * throughput:
        return None
    found = code_facts.promised(evidence, chain / throughput)
    return (
        None
        if found is None
        else Finding(
            evidence=(
                code_facts.of(function),
                Fact(name="cycles of a pass, limited by latency", value=f"{chain:.1f}", source="llvm-mca"),
                Fact(name="cycles of a pass, limited by throughput", value=f"{throughput:.1f}", source="llvm-mca"),
                code_facts.distance(evidence),
            ),
            gain=found,
            edit=f"use {max(2, round(chain / throughput))} independent accumulators (unroll by as many), and add them "
            "after the loop",
        )
    )


RULE = Rule(
    name="loop-chain",
    number=26,
    title="Each pass of the hottest loop waits for the results of the previous one",
    needs="llvm-mca's cycles of the host's code",
    explanation=f"""\
Condition: in llvm-mca's model of the hottest loop, the cycles of the dependency chain exceed {OVER} times the cycles
that the execution units need.
Formula: chain / throughput. The predicted gain is from {code_facts.REACHED} of the formula's gain above 1 to the limit
by bytes and operations. Threshold {OVER}: loops of the tuned kernels here have 1.0 to 1.3, a sum in one accumulator 4
or more.""",
    judge=_judge,
)
