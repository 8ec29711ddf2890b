"""The theoretical occupancy is low."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

WARPS = "sm__maximum_warps_per_active_cycle_pct"
MOST = 80.0
EDIT = "make more blocks resident: fewer registers (__launch_bounds__), less shared memory, another block size"


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.counted(evidence):
        warps = code_facts.counter(function, WARPS)
        if warps is None or not 0 < warps < MOST or not code_facts.far(evidence):
            continue
        found = gain(1.0, 100 / warps)
        if found is not None:
            return Finding(
                evidence=(code_facts.of(function), *code_facts.counters(function, WARPS)), gain=found, edit=EDIT
            )
    return None


RULE = Rule(
    name="ncu-registers",
    number=32,
    title="Registers, shared memory or the block size limit the warps on a multiprocessor",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Condition: less than {MOST:.0f} % of the possible warps can be resident, and the time is far above the time of bytes and
operations.
Formula: 1 to 100 / that percentage.""",
    judge=_judge,
)
