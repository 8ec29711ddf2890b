"""Local memory in L2."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

LOADS, STORES = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"
ALL = "lts__t_sectors_srcunit_tex.sum"
SHARE = 0.1
EDIT = "keep the data in registers: smaller tiles, constant indices, fewer live values"


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.counted(evidence):
        local, whole = (
            sum(code_facts.counter(function, each) or 0.0 for each in (LOADS, STORES)),
            code_facts.counter(function, ALL),
        )
        if not whole or not SHARE <= local / whole < 1:
            continue
        found = gain(1.0, whole / (whole - local))
        if found is not None:
            return Finding(
                evidence=(code_facts.of(function), *code_facts.counters(function, LOADS, STORES, ALL)),
                gain=found,
                edit=EDIT,
            )
    return None


RULE = Rule(
    name="ncu-local",
    number=40,
    title="Local memory takes a large part of the traffic to L2",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Condition: local memory (spills, arrays) has a share p of {SHARE} or more of the sectors that L1 requests from L2.
Formula: 1 to 1 / (1 - p).""",
    judge=_judge,
)
