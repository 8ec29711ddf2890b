"""Bank conflicts."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
WAVES = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
SHARE = 0.1
EDIT = "pad rows of shared memory by a word, or exchange the index's bits (swizzle), so that a warp touches 32 banks"


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
    title="Accesses to shared memory meet in the same bank",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Looks at the wavefronts of shared memory that conflicts add, over all of them: from {SHARE} on.
Formula: 1 / (1 - p) with p that share, at most.""",
    judge=_judge,
)
