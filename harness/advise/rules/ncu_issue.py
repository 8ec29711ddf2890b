"""Schedulers that do not issue."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

ISSUE = "smsp__issue_active.avg.per_cycle_active"
SM, MEMORY = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
)
ACTIVE = 0.6
EDIT = "use more warps, or more independent instructions per thread: unroll, load earlier, use several accumulators"


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.counted(evidence):
        issue, speeds = (
            code_facts.counter(function, ISSUE),
            [code_facts.counter(function, each) for each in (SM, MEMORY)],
        )
        known = [each for each in speeds if each is not None]
        if issue is None or not known or not 0 <= issue < ACTIVE or max(known) >= 100:
            continue
        found = gain(1.0, 1 / (1 - min(1 - issue, 1 - max(known) / 100)))
        if found is not None:
            return Finding(
                evidence=(code_facts.of(function), *code_facts.counters(function, ISSUE, SM, MEMORY)),
                gain=found,
                edit=EDIT,
            )
    return None


RULE = Rule(
    name="ncu-issue",
    number=30,
    title="Schedulers have no eligible warp in many cycles",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Condition: a scheduler issues less than {ACTIVE} warps per cycle.
Formula: 1 to 1 / (1 - p), p = min(1 - issue, 1 - the higher speed of light). Formula and threshold are those of Nsight
Compute.""",
    judge=_judge,
)
