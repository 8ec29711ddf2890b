"""Memory is read again."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

READ, L2 = "dram__bytes_read.sum", "lts__t_sector_hit_rate.pct"
AGAIN = 1.2
EDIT = (
    "read the input once: fuse passes, take tiles whose operands stay in L2, order blocks so that neighbours share them"
)


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.counted(evidence):
        read, least = code_facts.counter(function, READ), evidence.run.performance.read
        if not read or not least or read < AGAIN * least:
            continue
        found = gain(1.0, read / least)
        if found is not None:
            return Finding(
                evidence=(code_facts.of(function), *code_facts.counters(function, READ, L2)), gain=found, edit=EDIT
            )
    return None


RULE = Rule(
    name="ncu-misses",
    number=35,
    title="Memory is read several times: what would fit the caches does not stay there",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Looks at the bytes that the launch read from memory against the fewest that the work needs.
Formula: the one over the other, at most; from {AGAIN} on, as caches begin cold and a few sectors always come twice.""",
    judge=_judge,
)
