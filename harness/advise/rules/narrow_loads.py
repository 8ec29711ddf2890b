"""Narrow loads."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact

WIDE = 128

OVERHEAD = (
    "LDG",
    "LD",
    "STG",
    "ST",
    "ISETP",
    "UISETP",
    "BRA",
    "LEA",
    "ULEA",
    "IADD3",
    "UIADD3",
    "VIADD",
    "LDC",
    "ULDC",
    "BSSY",
    "BSYNC",
)
"""Loop overhead: loads, stores, addresses, bounds, jumps."""


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.functions(evidence):
        if not function.loads or max(function.loads) >= WIDE or not code_facts.far(evidence):
            continue
        widest = max(function.loads)
        counts = code_facts.busy(function)
        overhead = code_facts.number(counts, OVERHEAD)
        found = code_facts.promised(evidence, code_facts.saved(counts, overhead * (1 - widest / WIDE)))
        if found is None:
            continue
        widths = ", ".join(f"{count} of {width} bits" for width, count in sorted(function.loads.items()))
        return Finding(
            evidence=(
                code_facts.of(function),
                Fact(name="global loads", value=widths, source="code.functions: loads"),
                code_facts.counts("loads, stores, addresses, bounds and jumps", overhead, counts, function),
                code_facts.distance(evidence),
            ),
            gain=found,
            edit=f"load {WIDE} bits at a time (uint4, float4) and process {WIDE // widest} elements per thread in each "
            "pass; repack the data if these elements are not adjacent",
        )
    return None


RULE = Rule(
    name="narrow-loads",
    number=13,
    title="Loads from global memory are narrower than 16 bytes",
    needs="the instructions of a GPU kernel",
    explanation=f"""\
Condition: the widest load from global memory has less than {WIDE} bits, so no path of the kernel loads whole vectors.
The share of narrow loads is not used: tuned kernels here have up to 8 narrow loads, for tails, beside 2 wide ones.
Formula: old / new instructions, if loads, stores, addresses, bounds and jumps are needed once per {WIDE} bits. The
predicted gain is from {code_facts.REACHED} of the formula's gain above 1 to the limit by bytes and operations: wide
loads also put more bytes in flight. On the H200 baseline the rule names the change that was made to each v1 kernel.
`python suites/advise/score.py --code` reports how many measured gains are in the interval.""",
    judge=_judge,
)
