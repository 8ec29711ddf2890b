"""One reason for most stalls."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

PREFIX, SUFFIX = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
ALL = "smsp__average_warp_latency_per_inst_issued.ratio"
WORKING = ("selected", "not_selected")
"""States that are not stalls."""
SHARE = 0.3
EDITS = {
    "long_scoreboard": (
        "loads from global memory: load earlier and more at a time, 16 bytes per thread, keep data in shared memory"
    ),
    "short_scoreboard": "shared memory or special functions: fewer bank conflicts, fewer of these instructions",
    "barrier": ("barriers: smaller blocks, shuffles instead of shared memory, equal work for all warps"),
    "math_pipe_throttle": "one arithmetic pipe: use another instruction mix, or the tensor cores",
    "lg_throttle": "the queue of loads and stores: fewer and wider ones",
    "mio_throttle": "the queue of shared memory and shuffles: fewer and wider accesses",
    "wait": "fixed latencies of arithmetic: more independent instructions per thread",
    "membar": "memory fences: fewer of them",
    "drain": "stores at the end of warps: wider stores",
    "branch_resolving": "branches: fewer of them, or predication",
    "no_instruction": "the instruction cache: less unrolling",
    "imc_miss": "constants that are not cached: pass them in registers",
}


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.counted(evidence):
        stalls = {
            name.removeprefix(PREFIX).removesuffix(SUFFIX): value
            for name, value in function.counters.items()
            if name.startswith(PREFIX) and name.endswith(SUFFIX)
        }
        cycles = code_facts.counter(function, ALL) or sum(stalls.values())
        waits = {name: value for name, value in stalls.items() if name not in WORKING}
        if not waits or cycles <= 0:
            continue
        reason = max(waits, key=lambda name: waits[name])
        share = waits[reason] / cycles
        found = gain(1.0, 1 / (1 - share)) if SHARE <= share < 1 else None
        if found is not None:
            return Finding(
                evidence=(code_facts.of(function), *code_facts.counters(function, f"{PREFIX}{reason}{SUFFIX}", ALL)),
                gain=found,
                edit=f"warps wait for {EDITS.get(reason, reason.replace('_', ' '))}",
            )
    return None


RULE = Rule(
    name="ncu-stall",
    number=31,
    title="Warps wait most of the time for one reason",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Condition: the most common stall reason takes a share p of {SHARE} or more of the cycles between two instructions of a
warp. The threshold is Nsight Compute's.
Formula: 1 to 1 / (1 - p); other warps may hide the wait.""",
    judge=_judge,
)
