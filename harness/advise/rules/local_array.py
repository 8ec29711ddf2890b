"""An array in local memory."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.advise.rules.spills import without_local
from tritmark.harness.record import Fact, Function


def _facts(function: Function) -> tuple[Fact, ...]:
    if not function.stack or function.spilled != 0:
        return ()
    return (
        Fact(name="bytes of stack of a thread", value=str(function.stack), source="code.functions"),
        Fact(name="bytes spilled", value="0", source="ptxas -v"),
    )


def _judge(evidence: Evidence) -> Finding | None:
    edit = (
        "unroll the loop that indexes the array (#pragma unroll, constant bounds), choose by comparisons, or "
        "move it to shared memory"
    )
    return without_local(evidence, _facts, edit)


RULE = Rule(
    name="local-array",
    number=12,
    title="An array of each thread lies in memory, as it is indexed by a variable",
    needs="the resources of a GPU kernel",
    explanation=f"""\
Looks at a stack without spills, and at LDL and STL among the instructions that run most: an array that is indexed by a
variable cannot lie in registers.
Formula: old over new instructions with LDL and STL gone, promised from {code_facts.REACHED} of what it adds to 1 to
what bytes and operations allow. A stack that only calls use has neither. No CUDA kernel here has a stack.""",
    judge=_judge,
)
