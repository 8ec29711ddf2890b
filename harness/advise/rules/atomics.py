"""Atomics in the epilogue."""

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
"""Atomics on global memory that combine results; REDG.MIN reports the first bad input, which happens once or never."""


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
                edit="reduce within the block first and write one part a block, then add the parts up in a second, "
                "small kernel; measure both",
            )
        )
    return None


RULE = Rule(
    name="atomics",
    number=18,
    title="Results are added up by atomics",
    needs="the instructions of a GPU kernel",
    explanation="""\
Looks at atomics that add, take a maximum or compare and swap on global memory.
Formula: none but t over the time of bytes and operations: how often they meet on one address, no static look tells,
so the promise begins at 1, and only an A/B of both ways settles it.""",
    judge=_judge,
)
