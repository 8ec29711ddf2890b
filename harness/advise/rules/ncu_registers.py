"""Few warps fit."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

WARPS = "sm__maximum_warps_per_active_cycle_pct"
MOST = 80.0
EDIT = "let more blocks fit: fewer registers (__launch_bounds__), less shared memory, another block size"


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
    title="Registers, shared memory or the block size leave few warps on a multiprocessor",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Looks at the warps that can be resident in percent of the most: under {MOST:.0f}, where the time lies far above that of
bytes and operations.
Formula: 1 / (1 - p) with p = 1 - that share, at most.""",
    judge=_judge,
)
