"""Both speeds of light are low."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

SM, MEMORY = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
)
BUSY = 60.0
EDIT = "give each multiprocessor more parallel work: more warps, more independent loads per thread, fewer barriers"


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.counted(evidence):
        compute, memory = code_facts.counter(function, SM), code_facts.counter(function, MEMORY)
        if compute is None or memory is None or not 0 < max(compute, memory) < BUSY:
            continue
        found = gain(1.0, 100 / max(compute, memory))
        if found is not None:
            return Finding(
                evidence=(code_facts.of(function), *code_facts.counters(function, SM, MEMORY)), gain=found, edit=EDIT
            )
    return None


RULE = Rule(
    name="ncu-latency",
    number=29,
    title="Neither compute nor memory is busy: latency limits the time",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Condition: both speeds of light are below {BUSY:.0f} % of the peak.
Formula: 1 to 100 / the higher one. Threshold: Nsight Compute calls a kernel latency-bound below 60 %.""",
    judge=_judge,
)
