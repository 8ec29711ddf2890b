"""A partial last wave of blocks."""

from __future__ import annotations

from math import ceil

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact

LEAST = 0.1
"""Least share of the launch's time that the last wave wastes."""


def _judge(evidence: Evidence) -> Finding | None:
    gpu = code_facts.gpu(evidence)
    launches = tuple(code_facts.ran(evidence))
    if gpu is None or len(launches) != 1 or not launches[0].launch.resident or code_facts.far(evidence):
        return None
    (only,) = launches
    held = gpu.sms * launches[0].launch.resident
    waves = only.blocks / held
    whole = ceil(waves)
    if waves <= 1 or 1 - waves / whole < LEAST:
        return None
    found = gain(1.0, whole / waves)
    return (
        None
        if found is None
        else Finding(
            evidence=(
                *only.facts,
                Fact(name="resident blocks of the GPU", value=str(held), source="receipt.launched, machine.gpus"),
                Fact(name="waves", value=f"{waves:.2f}", source="the two above"),
            ),
            gain=found,
            edit=f"choose tiles that give a multiple of {held} blocks or slightly fewer, or launch {held} blocks that "
            "loop over all tiles",
        )
    )


RULE = Rule(
    name="last-wave",
    number=8,
    title="The last wave of blocks fills only a part of the GPU",
    needs="a GPU, the launches of the receipt, and the resident blocks per multiprocessor",
    explanation=f"""\
Condition: one launch with more than one wave, and a time near the time of bytes and operations. Far above it other
faults dominate. waves = blocks / (multiprocessors x resident blocks per multiprocessor).
Formula: 1 to 1 / (1 - p), p = 1 - waves / ceil(waves). It begins at 1, because blocks do not end together and the last
ones run faster alone. Threshold: p = {LEAST}, which 5 to 9 waves can lose. More waves lose less.""",
    judge=_judge,
)
