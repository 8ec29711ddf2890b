"""Many unpacking instructions for each dot product."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import INTENSE, Evidence
from tritmark.harness.advise.rule import Finding, Rule

UNPACK = ("LOP3", "SHF", "PRMT", "ULOP3", "USHF")
DOTS = ("IDP", "IDP4A")
MOST = 4
"""Most unpacking instructions per dot product."""


def _judge(evidence: Evidence) -> Finding | None:
    if not code_facts.far(evidence) or not code_facts.product(evidence):
        return None
    for function in code_facts.functions(evidence):
        counts = code_facts.busy(function)
        dots, unpack = code_facts.number(counts, DOTS), code_facts.number(counts, UNPACK)
        if not dots or unpack <= MOST * dots or code_facts.number(counts, ("IMMA",)):
            continue
        found = code_facts.promised(evidence, code_facts.saved(counts, unpack - dots))
        if found is None:
            continue
        return Finding(
            evidence=(
                code_facts.of(function),
                code_facts.counts("LOP3, SHF and PRMT", unpack, counts, function),
                code_facts.counts("IDP", dots, counts, function),
                code_facts.distance(evidence),
            ),
            gain=found,
            edit="use a layout in which one mask gives the operand of a dot product (interleaved codes as in row16 and "
            "tile64), read whole words, and unpack once for several rows of activations",
        )
    return None


RULE = Rule(
    name="unpacking",
    number=16,
    title="Unpacking takes more instructions than multiplying",
    needs="the instructions of a GPU kernel",
    explanation=f"""\
Condition: more than {MOST} unpacking instructions (LOP3, SHF, PRMT) per dot product (IDP) among the instructions that
run most, at {INTENSE} operations per byte or more. Functions that use tensor cores are excluded.
Formula: old / new instructions with one unpacking instruction per product. The predicted gain is from
{code_facts.REACHED} of the formula's gain above 1 to the limit by bytes and operations. Threshold {MOST}: the tiled v1
product here has 7 per IDP, gemv_dp4a 2 to 4.""",
    judge=_judge,
)
