"""Few resident threads."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.advise.rules.narrow_loads import WIDE
from tritmark.harness.record import Fact

LOW = 0.5

THREADS = {
    75: 1024,
    80: 2048,
    86: 1536,
    87: 1536,
    89: 1536,
    90: 2048,
    100: 2048,
    103: 2048,
    110: 1536,
    120: 1536,
    121: 1536,
}
"""Threads that a multiprocessor holds, by compute capability (CUDA C++ Programming Guide, table of technical
specifications)."""


def _judge(evidence: Evidence) -> Finding | None:
    gpu = code_facts.gpu(evidence)
    most = THREADS.get(10 * gpu.capability[0] + gpu.capability[1]) if gpu is not None else None
    if gpu is None or most is None or not code_facts.far(evidence):
        return None
    for each in code_facts.ran(evidence):
        resident = each.launch.resident
        # With less than one wave it is the grid that keeps multiprocessors empty.
        # Threads that load whole vectors have enough under way.
        if not resident or each.blocks < resident * gpu.sms or max(each.function.loads, default=0) >= WIDE:
            continue
        occupancy = resident * each.threads / most
        found = code_facts.promised(evidence, 1 / occupancy) if occupancy < LOW else None
        if found is None:
            continue
        function = each.function
        limits = {"registers of a thread": function.registers, "bytes of static shared memory": function.shared}
        return Finding(
            evidence=(
                *each.facts,
                Fact(
                    name="threads that a multiprocessor holds",
                    value=f"{resident * each.threads} of {most}",
                    source="receipt.launched",
                ),
                *(
                    Fact(name=name, value=str(value), source="code.functions")
                    for name, value in limits.items()
                    if value is not None
                ),
                code_facts.distance(evidence),
            ),
            gain=found,
            edit="let more blocks fit: __launch_bounds__ with a number of blocks, fewer registers, smaller tiles in "
            "shared memory, or smaller blocks",
        )
    return None


RULE = Rule(
    name="low-occupancy",
    number=10,
    title="Multiprocessors hold less than half of their threads",
    needs="a GPU, the launches of the receipt and how many blocks a multiprocessor holds",
    explanation=f"""\
Looks at resident threads over those that a multiprocessor of that compute capability holds, of launches of at least one
full wave.
Formula: 1 / (1 - p) with p = 1 - occupancy, at most; promised from {code_facts.REACHED} of what it adds to 1. Under
{LOW} a kernel that waits for memory has too few warps to hide the wait. Kernels with much under way in each thread
reach their ceiling with less (gemv_mma and gemv_rows here): so it speaks only where no load is of {WIDE} bits, and
far above the time of bytes and operations.""",
    judge=_judge,
)
