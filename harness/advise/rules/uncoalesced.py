"""Uncoalesced accesses."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.spec import DEVICE_MEMORY, KernelAccesses
from tritmark.harness.text import units

SOURCE = "accesses: simulated, not measured"


def _judge(evidence: Evidence) -> Finding | None:
    found = next((each for each in evidence.record.accesses if each.kernel == evidence.run.kernel), None)
    receipt = evidence.run.receipt
    if found is None or receipt is None or not evidence.on_device or not evidence.memory_side:
        return None
    functions = frozenset(receipt.functions)
    requests, sectors, least = found.totals(DEVICE_MEMORY, functions)
    if not requests or sectors == least:
        return None
    gain = code_facts.promised(evidence, sectors / least)
    if gain is None:
        return None
    return Finding(
        evidence=(
            Fact(name="sectors per request", value=units.number(sectors / requests), source=SOURCE),
            Fact(name="fewest for its bytes", value=units.number(least / requests), source=SOURCE),
            *_worst(found, functions),
            Fact(name="shape of the simulated call", value=_axes(found), source=SOURCE),
            code_facts.distance(evidence),
        ),
        gain=gain,
        edit="make adjacent lanes access adjacent bytes: give each lane another element, transpose through shared "
        "memory, or change the layout",
    )


def _worst(found: KernelAccesses, functions: frozenset[str]) -> tuple[Fact, ...]:
    """The access with the most sectors above the least."""
    worst = max(
        (each for each in found.accesses if each.memory == DEVICE_MEMORY and each.function in functions),
        key=lambda each: each.transactions - each.least,
    )
    what = f"{worst.kind} of {worst.size} bytes a lane, {worst.pattern}, {worst.line or worst.function}"
    return (Fact(name="access with the most excess", value=what, source=SOURCE),)


def _axes(found: KernelAccesses) -> str:
    return ", ".join(f"{name}={size}" for name, size in found.axes.items())


RULE = Rule(
    name="uncoalesced",
    number=42,
    title="Accesses to device memory touch more sectors than their bytes need",
    needs="a GPU, and access patterns, which `tritmark run` traces in the simulator (g++)",
    explanation=f"""\
Condition: reads or writes limit the least time, and the launched functions touch at least
{code_facts.LEAST}x the sectors of 32 bytes that could hold the bytes of each request (a load or store by a warp).
Formula: sectors / fewest sectors, and at most t over the time of bytes and operations: if that is less, caches serve
some of the sectors. The predicted gain is from {code_facts.REACHED} of the formula's gain above 1 to the limit by bytes
and operations, as for the other rules on code.
The sectors are simulated facts, from one small call. They were never measured on the GPU: another shape weights loop
and epilogue differently, and caches may serve a sector that several requests touch.""",
    judge=_judge,
)
