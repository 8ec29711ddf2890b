"""Memory is read several times."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

READ, L2 = "dram__bytes_read.sum", "lts__t_sector_hit_rate.pct"
AGAIN = 1.2
EDIT = (
    "read the input once: fuse passes, use tiles whose operands stay in L2, order blocks so that adjacent ones share "
    "operands"
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
    title="Memory is read several times: data does not stay in the caches",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Condition: the launch reads {AGAIN} times the least bytes of the work from memory, or more.
Formula: 1 to that ratio. Threshold {AGAIN}: caches begin cold, and a few sectors are always read twice.""",
    judge=_judge,
)
