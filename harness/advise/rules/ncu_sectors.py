"""Few bytes of each sector are used."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

USED = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"
SECTOR = 32
"""Bytes."""
WELL = 0.8
EDIT = "make adjacent threads read adjacent bytes: transpose through shared memory, or change the layout"


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.counted(evidence):
        used = code_facts.counter(function, USED)
        if used is None or not 0 < used < WELL * SECTOR:
            continue
        found = gain(1.0, SECTOR / used)
        if found is not None:
            return Finding(
                evidence=(code_facts.of(function), *code_facts.counters(function, USED)), gain=found, edit=EDIT
            )
    return None


RULE = Rule(
    name="ncu-sectors",
    number=34,
    title="Loads use only a part of each 32-byte sector",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Condition: global loads use less than {WELL:.0%} of each sector of {SECTOR} bytes.
Formula: 1 to {SECTOR} / used bytes; caches may serve a sector twice.""",
    judge=_judge,
)
