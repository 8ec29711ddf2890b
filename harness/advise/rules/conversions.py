"""Conversions between integers and floats in a loop."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact

CONVERT = ("I2F", "F2I", "I2FP", "F2IP", "F2F")
SHARE = 0.1
SLOTS = 4
"""A conversion runs at a quarter of the rate of an addition or less (CUDA C++ Programming Guide, arithmetic
throughput)."""


def _judge(evidence: Evidence) -> Finding | None:
    if not code_facts.far(evidence):
        return None
    for function in code_facts.functions(evidence):
        found = code_facts.number(function.loop, CONVERT)
        whole = sum(function.loop.values())
        if not found or found <= SHARE * whole:
            continue
        share = SLOTS * found / (whole + (SLOTS - 1) * found)
        gain = code_facts.promised(evidence, 1 / (1 - share) if share < 1 else SLOTS)
        if gain is None:
            continue
        return Finding(
            evidence=(
                code_facts.of(function),
                code_facts.counts("conversions", found, function.loop, function),
                Fact(
                    name="share of the issue slots",
                    value=f"{100 * share:.0f} %",
                    source=f"conversions, {SLOTS} slots each",
                ),
                code_facts.distance(evidence),
            ),
            gain=gain,
            edit="move scales out of the loop and use integers inside it; round by adding 1.5 * 2^23 instead of F2I, "
            "or select a code by comparisons",
        )
    return None


RULE = Rule(
    name="conversions",
    number=17,
    title="Conversions between integers and floats take a large part of the loop",
    needs="the instructions of a GPU kernel",
    explanation=f"""\
Condition: conversions are more than {SHARE} of the instructions of the hottest loop. Each takes {SLOTS} issue slots.
Formula: 1 / (1 - p), p the share of conversions in the issue slots. The predicted gain is from {code_facts.REACHED} of
the formula's gain above 1 to the limit by bytes and operations. Threshold: excludes loops with one conversion per
16-byte load.""",
    judge=_judge,
)
