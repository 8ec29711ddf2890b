"""Achieved occupancy below the theoretical one."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

WARPS, ACHIEVED = "sm__maximum_warps_per_active_cycle_pct", "sm__warps_active.avg.pct_of_peak_sustained_active"
POINTS = 10.0
EDIT = "distribute the work evenly: blocks of equal work, more and smaller blocks, no long tail of a few warps"


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.counted(evidence):
        fit, there = code_facts.counter(function, WARPS), code_facts.counter(function, ACHIEVED)
        if fit is None or not there or fit - there < POINTS:
            continue
        found = gain(1.0, fit / there)
        if found is not None:
            return Finding(
                evidence=(code_facts.of(function), *code_facts.counters(function, WARPS, ACHIEVED)),
                gain=found,
                edit=EDIT,
            )
    return None


RULE = Rule(
    name="ncu-occupancy",
    number=33,
    title="Fewer warps are resident than possible: the work is distributed unevenly",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Condition: the achieved occupancy is {POINTS:.0f} percentage points or more below the theoretical one, so blocks end at
different times.
Formula: 1 to theoretical / achieved.""",
    judge=_judge,
)
