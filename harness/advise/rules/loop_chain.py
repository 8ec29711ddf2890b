"""Each pass of the loop waits for the one before."""

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
                Fact(name="cycles of a pass, waiting for results", value=f"{chain:.1f}", source="llvm-mca"),
                Fact(name="cycles of a pass by busy units", value=f"{throughput:.1f}", source="llvm-mca"),
                code_facts.distance(evidence),
            ),
            gain=found,
            edit=f"use {max(2, round(chain / throughput))} independent accumulators (unroll by as many), and add them "
            "up behind the loop",
        )
    )


RULE = Rule(
    name="loop-chain",
    number=26,
    title="Each pass of the hottest loop waits for the results of the one before",
    needs="llvm-mca's cycles of the host's code",
    explanation=f"""\
Looks at llvm-mca's cycles of a pass through the hottest loop where waiting for results outweighs busy units, over what
the units need.
Formula: chain over throughput, promised from {code_facts.REACHED} of what it adds to 1 to what bytes and operations
allow. The loops of the tuned kernels here lie at 1.0 to 1.3 of it, a sum in one accumulator at 4 and more: {OVER}
lies between.""",
    judge=_judge,
)
