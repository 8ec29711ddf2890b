"""A matrix product without tensor cores."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.text import units

ROWS = 16
MATRIX = (
    "IMMA",
    "HMMA",
    "BMMA",
    "QMMA",
    "OMMA",
    "DMMA",
    "HGMMA",
    "IGMMA",
    "QGMMA",
    "BGMMA",
    "UTCHMMA",
    "UTCIMMA",
    "UTCQMMA",
)
PRODUCTS = ("IDP", "IDP4A", "FFMA", "HFMA2")
NARROW = 16


def _judge(evidence: Evidence) -> Finding | None:
    matrix, dot = evidence.ceiling("compute"), evidence.ceiling("dot")
    rows = evidence.run.workload.axes.get("M", 0)
    if (
        matrix is None
        or dot is None
        or matrix <= dot
        or rows < ROWS
        or not code_facts.product(evidence)
        or not code_facts.far(evidence)
    ):
        return None
    for function in code_facts.functions(evidence):
        counts = code_facts.busy(function)
        products = code_facts.number(counts, PRODUCTS)
        narrow = (function.loads and min(function.loads) <= NARROW) or code_facts.number(counts, ("IDP", "IDP4A"))
        if not products or not narrow or code_facts.number(function.instructions, MATRIX):
            continue
        found = code_facts.promised(evidence, matrix / dot)
        if found is None:
            continue
        return Finding(
            evidence=(
                code_facts.of(function),
                code_facts.counts(
                    "multiply-adds, without matrix instructions in the function", products, counts, function
                ),
                Fact(name="rows M", value=str(rows), source="workload.axes"),
                Fact(name="tensor cores", value=units.rate(matrix, "operations/s"), source="machine.ceilings: compute"),
                Fact(name="dot products", value=units.rate(dot, "operations/s"), source="machine.ceilings: dot"),
                code_facts.distance(evidence),
            ),
            gain=found,
            edit="multiply tiles of 16 rows on the tensor cores: mma or wmma fragments, with tiles staged in shared "
            "memory",
        )
    return None


RULE = Rule(
    name="no-tensor-cores",
    number=15,
    title="A matrix product that does not use the tensor cores",
    needs="the instructions of a GPU kernel, and the rates of dot products and of tensor cores",
    explanation=f"""\
Condition: a product with M >= {ROWS}, the height of a tensor-core tile, and elements of at most {NARROW} bits, whose
function has multiply-adds and no matrix instruction. Products of float32 are excluded: tensor cores would change their
bits.
Formula: the measured P_tensor / P_dp4a of this GPU. The predicted gain is from {code_facts.REACHED} of the formula's
gain above 1 to the limit by bytes and operations. On the H200 the ratio is 8.1, and wmma sped up the 16-bit products of
the baseline by 4.0 and 5.4.""",
    judge=_judge,
)
