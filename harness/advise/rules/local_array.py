"""Rule 12: an array in local memory."""

from __future__ import annotations

from tritmark.harness.advise.code import facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.advise.rules.spills import LOCAL
from tritmark.harness.record import Fact


def _judge(evidence: Evidence) -> Finding | None:
    for function in facts.functions(evidence):
        if not function.stack or function.spilled != 0 or not facts.far(evidence):
            continue
        counts = facts.busy(function)
        local = facts.number(counts, LOCAL)
        found = facts.promised(evidence, facts.saved(counts, local)) if local else None
        if found is None:
            continue
        return Finding(
            evidence=(
                facts.of(function),
                Fact(name="bytes of stack of a thread", value=str(function.stack), source="code.functions"),
                Fact(name="bytes spilled", value="0", source="ptxas -v"),
                facts.counts("loads and stores of local memory", local, counts, function),
                facts.distance(evidence),
            ),
            gain=found,
            edit="unroll the loop that indexes the array (#pragma unroll, constant bounds), choose by comparisons, or move it to "
            "shared memory",
        )
    return None


RULE = Rule(
    name="local-array",
    number=12,
    title="An array of each thread lies in memory, as it is indexed by a variable",
    needs="the resources of a GPU kernel",
    explanation=f"""\
Looks at a stack without spills, and at LDL and STL among the instructions that run most: an array that is indexed by a variable
cannot lie in registers.
Formula: old over new instructions with LDL and STL gone, promised from {facts.REACHED} of what it adds to 1 to what bytes and
operations allow. A stack that only calls use has neither. No CUDA kernel here has a stack.""",
    judge=_judge,
)
