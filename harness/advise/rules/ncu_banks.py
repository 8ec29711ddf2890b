"""Bank conflicts."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
WAVES = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
SHARE = 0.1
EDIT = "pad rows of shared memory by a word, or swizzle the index bits, so that a warp accesses 32 banks"


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.counted(evidence):
        conflicts, waves = code_facts.counter(function, CONFLICTS), code_facts.counter(function, WAVES)
        if not conflicts or not waves or not SHARE <= conflicts / waves < 1:
            continue
        found = gain(1.0, waves / (waves - conflicts))
        if found is not None:
            return Finding(
                evidence=(code_facts.of(function), *code_facts.counters(function, CONFLICTS, WAVES)),
                gain=found,
                edit=EDIT,
            )
    return None


RULE = Rule(
    name="ncu-banks",
    number=37,
    title="Accesses to shared memory have bank conflicts",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Condition: conflicts cause a share p of {SHARE} or more of the wavefronts of shared memory.
Formula: 1 to 1 / (1 - p).""",
    judge=_judge,
)
