"""Unpacking for each dot product."""

from __future__ import annotations

from tritmark.harness.advise.code import facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule

UNPACK = ("LOP3", "SHF", "PRMT", "ULOP3", "USHF")
DOTS = ("IDP", "IDP4A")
MOST = 4
"""Unpacking instructions for each product."""


def _judge(evidence: Evidence) -> Finding | None:
    if not facts.far(evidence) or not facts.product(evidence):
        return None
    for function in facts.functions(evidence):
        counts = facts.busy(function)
        dots, unpack = facts.number(counts, DOTS), facts.number(counts, UNPACK)
        if not dots or unpack <= MOST * dots or facts.number(counts, ("IMMA",)):
            continue
        found = facts.promised(evidence, facts.saved(counts, unpack - dots))
        if found is None:
            continue
        return Finding(
            evidence=(
                facts.of(function),
                facts.counts("LOP3, SHF and PRMT", unpack, counts, function),
                facts.counts("IDP", dots, counts, function),
                facts.distance(evidence),
            ),
            gain=found,
            edit="lay the codes out so that one mask gives the operand of a dot product (interleaved, as row16 and tile64 are), read them "
            "in words, and unpack once for several rows of activations",
        )
    return None


RULE = Rule(
    name="unpacking",
    number=16,
    title="Unpacking takes more instructions than multiplying",
    needs="the instructions of a GPU kernel",
    explanation=f"""\
Looks at LOP3, SHF and PRMT over dot products (IDP) in what runs most, for work of at least {facts.INTENSE} operations a byte: over
{MOST} for each product unpacking sets the pace.
Formula: old over new instructions, where one is left for each product; promised from {facts.REACHED} of what it adds to 1 to what
bytes and operations allow. The tiled v1 product here has 7 for each IDP, gemv_dp4a 2 to 4. Tensor cores take many products at a time,
so a ratio to them means nothing.""",
    judge=_judge,
)
