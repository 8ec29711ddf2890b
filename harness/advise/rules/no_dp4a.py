"""Integer products without dot-product instructions."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import INTENSE, Evidence
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
                code_facts.counts("IMAD, without IDP and matrix instructions", products, counts, function),
                Fact(name="operations per byte", value=f"{evidence.ops / evidence.b:.1f}", source="performance"),
                code_facts.distance(evidence),
            ),
            gain=found,
            edit="add four products at a time with __dp4a: store four int8 of a row in one word, for both operands",
        )
    return None


RULE = Rule(
    name="no-dp4a",
    number=14,
    title="Integer products are added one at a time",
    needs="the instructions of a GPU kernel",
    explanation=f"""\
Condition: at least {INTENSE} operations per byte, and a loop with integer multiply-adds (IMAD) but no dot
products (IDP), matrix instructions or floating point.
Formula: {FOLD}, because an IDP does four multiply-adds. The predicted gain is from {code_facts.REACHED} of the
formula's gain above 1 to the limit by bytes and operations, because operands are also loaded as words. The products
here use dp4a since v1, where the compiler generates it.""",
    judge=_judge,
)
