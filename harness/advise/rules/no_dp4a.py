"""Integer products without dot-product instructions."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact

DOTS = ("IDP", "IDP4A", "IMMA", "HMMA", "HGMMA", "IGMMA", "QMMA")
FLOATS = ("FFMA", "HFMA2", "DFMA", "FADD", "DADD", "FMUL", "DMUL")
FOLD = 4


def _judge(evidence: Evidence) -> Finding | None:
    if not code_facts.far(evidence) or not code_facts.product(evidence):
        return None
    for function in code_facts.functions(evidence):
        counts = function.loop or function.instructions
        products = code_facts.number(counts, ("IMAD",))
        if not products or code_facts.number(counts, FLOATS) or code_facts.number(function.instructions, DOTS):
            continue
        found = code_facts.promised(evidence, FOLD)
        if found is None:
            continue
        return Finding(
            evidence=(
                code_facts.of(function),
                code_facts.counts("IMAD, no IDP and no matrix instruction:", products, counts, function),
                Fact(name="operations for a byte", value=f"{evidence.ops / evidence.b:.1f}", source="performance"),
                code_facts.distance(evidence),
            ),
            gain=found,
            edit="add up four products at a time with __dp4a: keep four int8 of a row in one word, on both sides",
        )
    return None


RULE = Rule(
    name="no-dp4a",
    number=14,
    title="Integer products are added up one by one",
    needs="the instructions of a GPU kernel",
    explanation=f"""\
Looks at work of at least {code_facts.INTENSE} operations a byte whose loop has integer multiply-adds (IMAD) and neither
dot products (IDP), matrix instructions nor floating point.
Formula: at most min({FOLD}, t/R), as an IDP does four of them; promised from {code_facts.REACHED} of what it adds to
1 to what bytes and operations allow, since operands come in words, too. In the story of the products here dp4a came
with tiles in registers; v1 already has it by the compiler.""",
    judge=_judge,
)
