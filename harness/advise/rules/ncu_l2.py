"""Excessive sectors in L2."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

ALL = "memory_l2_theoretical_sectors_global"
IDEAL = "memory_l2_theoretical_sectors_global_ideal"
OVER = 1.1
EDIT = "coalesce accesses: each warp accesses whole, aligned lines of 128 bytes"


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.counted(evidence):
        took, ideal = code_facts.counter(function, ALL), code_facts.counter(function, IDEAL)
        if not took or not ideal or took < OVER * ideal:
            continue
        found = gain(1.0, took / ideal)
        if found is not None:
            return Finding(
                evidence=(code_facts.of(function), *code_facts.counters(function, ALL, IDEAL)), gain=found, edit=EDIT
            )
    return None


RULE = Rule(
    name="ncu-l2",
    number=36,
    title="Accesses use more L2 sectors than necessary",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Condition: global accesses use {OVER} times the L2 sectors of coalesced accesses, or more.
Formula: 1 to that ratio.""",
    judge=_judge,
)
