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
        Fact(name="bytes of stack per thread", value=str(function.stack), source="code.functions"),
        Fact(name="bytes spilled", value="0", source="ptxas -v"),
    )


def _judge(evidence: Evidence) -> Finding | None:
    edit = (
        "unroll the loop that indexes the array (#pragma unroll, constant bounds), select by comparisons, or "
        "move the array to shared memory"
    )
    return without_local(evidence, _facts, edit)


RULE = Rule(
    name="local-array",
    number=12,
    title="A per-thread array is in local memory, because a variable indexes it",
    needs="the resource use of a GPU kernel",
    explanation=f"""\
Condition: a stack without spills, and LDL or STL among the instructions that run most. An array that a variable indexes
cannot be in registers. A stack that only calls use has no LDL and STL.
Formula: instructions / instructions without LDL and STL. The predicted gain is from {code_facts.REACHED} of the
formula's gain above 1 to the limit by bytes and operations. No CUDA kernel here has a stack.""",
    judge=_judge,
)
