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
"""What a pass of a loop does besides its work: loads, stores, addresses, bounds, jumps."""


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
            edit=f"load {WIDE} bits at a time (uint4, float4) and handle {WIDE // widest} elements a thread in each "
            "pass; repack where elements that belong together lie apart",
        )
    return None


RULE = Rule(
    name="narrow-loads",
    number=13,
    title="Global memory is read in pieces of less than 16 bytes",
    needs="the instructions of a GPU kernel",
    explanation=f"""\
Looks at the widest load from global memory: under {WIDE} bits no path of the kernel loads whole vectors. (A share of
narrow loads would mistake the tails beside a vector path: tuned kernels here have up to 8 narrow loads for 2 wide
ones.)
Formula: old over new instructions, where loads, stores, addresses, bounds and jumps are needed once for {WIDE} bits;
promised from {code_facts.REACHED} of what it adds to 1 to what bytes and operations allow, as wide loads bring more
bytes under way, too. On the H200 baseline it names what was done to every v1 kernel: 16-byte loads, several elements
a thread. `python suites/advise/score.py --code` says how many of the measured gains lie in the interval.""",
    judge=_judge,
)
