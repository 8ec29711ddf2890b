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
"""Most resident threads of a multiprocessor, by compute capability (CUDA C++ Programming Guide, table of technical
specifications)."""


def _judge(evidence: Evidence) -> Finding | None:
    gpu = code_facts.gpu(evidence)
    most = THREADS.get(10 * gpu.capability[0] + gpu.capability[1]) if gpu is not None else None
    if gpu is None or most is None or not code_facts.far(evidence):
        return None
    for each in code_facts.ran(evidence):
        resident = each.launch.resident
        # With less than one wave, the grid and not the occupancy leaves multiprocessors empty.
        # Threads that load whole vectors have enough bytes in flight.
        if not resident or each.blocks < resident * gpu.sms or max(each.function.loads, default=0) >= WIDE:
            continue
        occupancy = resident * each.threads / most
        found = code_facts.promised(evidence, 1 / occupancy) if occupancy < LOW else None
        if found is None:
            continue
        function = each.function
        limits = {"registers per thread": function.registers, "bytes of static shared memory": function.shared}
        return Finding(
            evidence=(
                *each.facts,
                Fact(
                    name="resident threads per multiprocessor",
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
            edit="make more blocks resident: __launch_bounds__ with a number of blocks, fewer registers, smaller tiles "
            "in shared memory, or smaller blocks",
        )
    return None


RULE = Rule(
    name="low-occupancy",
    number=10,
    title="Less than half of the possible threads are resident on a multiprocessor",
    needs="a GPU, the launches of the receipt, and the resident blocks per multiprocessor",
    explanation=f"""\
Condition: occupancy below {LOW}, resident threads over the most for this compute capability, in a launch of at least
one full wave; no load has {WIDE} bits, and the time is far above the time of bytes and operations. Kernels with many
bytes in flight per thread (gemv_mma and gemv_rows here) reach their ceiling with a lower occupancy.
Formula: 1 / occupancy. The predicted gain is from {code_facts.REACHED} of the formula's gain above 1 to the limit by
bytes and operations. Threshold {LOW}: below it, a kernel that waits for memory has too few warps to hide the wait.""",
    judge=_judge,
)
