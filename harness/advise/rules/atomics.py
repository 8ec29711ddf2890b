"""Atomics that combine results."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact

ADDING = (
    "RED.ADD",
    "REDG.ADD",
    "ATOM.ADD",
    "ATOMG.ADD",
    "RED.MAX",
    "REDG.MAX",
    "ATOM.MAX",
    "ATOMG.MAX",
    "ATOM.CAS",
    "ATOMG.CAS",
)
"""Atomics on global memory that combine results. REDG.MIN is excluded: it reports the first bad input, at most once."""


def _judge(evidence: Evidence) -> Finding | None:
    if not code_facts.far(evidence):
        return None
    for function in code_facts.functions(evidence):
        atomics = {name: count for name, count in function.instructions.items() if name in ADDING}
        if not atomics:
            continue
        found = gain(1.0, evidence.t / evidence.shared)
        return (
            None
            if found is None
            else Finding(
                evidence=(
                    code_facts.of(function),
                    Fact(
                        name="atomics on global memory",
                        value=", ".join(f"{count} {name}" for name, count in atomics.items()),
                        source="code.functions: instructions",
                    ),
                    code_facts.distance(evidence),
                ),
                gain=found,
                edit="reduce within the block first, write one partial result per block, and add these in a second, "
                "small kernel; measure both",
            )
        )
    return None


RULE = Rule(
    name="atomics",
    number=18,
    title="Atomics combine the results",
    needs="the instructions of a GPU kernel",
    explanation="""\
Condition: atomics on global memory that add, take a maximum, or compare and swap.
Formula: 1 to t over the time of bytes and operations. The code does not show how often atomics meet on one address, so
the gain begins at 1. Only a measurement of both versions decides.""",
    judge=_judge,
)
