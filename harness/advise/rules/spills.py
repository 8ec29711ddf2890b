"""Registers spilled to memory."""

from __future__ import annotations

from collections.abc import Callable

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact, Function

LOCAL = ("LDL", "STL")
"""Loads from, and stores to, local memory."""


def without_local(evidence: Evidence, report: Callable[[Function], tuple[Fact, ...]], edit: str) -> Finding | None:
    """What it brings to take LOCAL out of the first function that has it where it runs most, and of which `told` has
    facts to tell."""
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
        Fact(name="bytes spilled and loaded back", value=str(function.spilled), source="ptxas -v"),
        Fact(name="registers of a thread", value=str(function.registers), source="code.functions"),
    )


def _judge(evidence: Evidence) -> Finding | None:
    edit = (
        "take a smaller tile a thread (fewer accumulators), raise what __launch_bounds__ or -maxrregcount "
        "leaves, or unroll less"
    )
    return without_local(evidence, _facts, edit)


RULE = Rule(
    name="spills",
    number=11,
    title="The compiler spilled registers to memory",
    needs="the compiler's report on a GPU kernel",
    explanation=f"""\
Looks at the bytes that ptxas says it spilled, and at LDL and STL among the instructions that run most.
Formula: old over new instructions with LDL and STL gone, promised from {code_facts.REACHED} of what it adds to 1 to
what bytes and operations allow. Spills outside of what runs most cost nothing, so they are passed over. No CUDA
kernel here spills: budgets hold them to that.""",
    judge=_judge,
)
