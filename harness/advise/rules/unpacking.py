"""Unpacking for each dot product."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule

UNPACK = ("LOP3", "SHF", "PRMT", "ULOP3", "USHF")
DOTS = ("IDP", "IDP4A")
MOST = 4
"""Unpacking instructions for each product."""


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
            edit="lay the codes out so that one mask gives the operand of a dot product (interleaved, as row16 and "
            "tile64 are), read them in words, and unpack once for several rows of activations",
        )
    return None


RULE = Rule(
    name="unpacking",
    number=16,
    title="Unpacking takes more instructions than multiplying",
    needs="the instructions of a GPU kernel",
    explanation=f"""\
Looks at LOP3, SHF and PRMT over dot products (IDP) in what runs most, for work of at least {code_facts.INTENSE}
operations a byte: over {MOST} for each product unpacking sets the pace.
Formula: old over new instructions, where one is left for each product; promised from {code_facts.REACHED} of what it
adds to 1 to what bytes and operations allow. The tiled v1 product here has 7 for each IDP, gemv_dp4a 2 to 4. Tensor
cores take many products at a time, so a ratio to them means nothing.""",
    judge=_judge,
)
