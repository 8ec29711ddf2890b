"""Registers are spilled to memory."""

from __future__ import annotations

from collections.abc import Callable

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact, Function

LOCAL = ("LDL", "STL")
"""Loads from, and stores to, local memory."""


def without_local(evidence: Evidence, report: Callable[[Function], tuple[Fact, ...]], edit: str) -> Finding | None:
    """The gain from removing LOCAL from the first function that has it among the instructions that run most and for
    which `report` returns facts."""
    for function in code_facts.functions(evidence):
        known = report(function)
        if not known or not code_facts.far(evidence):
            continue
        counts = code_facts.busy(function)
        local = code_facts.number(counts, LOCAL)
        found = code_facts.promised(evidence, code_facts.saved(counts, local)) if local else None
        if found is None:
            continue
        named = code_facts.counts("loads and stores of local memory", local, counts, function)
        return Finding(
            evidence=(code_facts.of(function), *known, named, code_facts.distance(evidence)), gain=found, edit=edit
        )
    return None


def _facts(function: Function) -> tuple[Fact, ...]:
    if not function.spilled:
        return ()
    return (
        Fact(name="bytes spilled and reloaded", value=str(function.spilled), source="ptxas -v"),
        Fact(name="registers per thread", value=str(function.registers), source="code.functions"),
    )


def _judge(evidence: Evidence) -> Finding | None:
    edit = (
        "use a smaller tile per thread (fewer accumulators), permit more registers (__launch_bounds__, -maxrregcount), "
        "or unroll less"
    )
    return without_local(evidence, _facts, edit)


RULE = Rule(
    name="spills",
    number=11,
    title="The compiler spills registers to memory",
    needs="the compiler's report on a GPU kernel",
    explanation=f"""\
Condition: ptxas reports spilled bytes, and LDL or STL are among the instructions that run most. Other spills cost
almost nothing and are ignored.
Formula: instructions / instructions without LDL and STL. The predicted gain is from {code_facts.REACHED} of the
formula's gain above 1 to the limit by bytes and operations. No CUDA kernel here spills, which register budgets
ensure.""",
    judge=_judge,
)
