"""A partial last wave of blocks."""

from __future__ import annotations

from math import ceil

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact

LEAST = 0.1
"""Share of the launch's time that the last wave must waste."""


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
                Fact(
                    name="blocks that the GPU holds at a time", value=str(held), source="receipt.launched, machine.gpus"
                ),
                Fact(name="waves", value=f"{waves:.2f}", source="the two above"),
            ),
            gain=found,
            edit=f"choose tiles so that the blocks are a multiple of {held} or just under it, or let {held} blocks go "
            "over all tiles",
        )
    )


RULE = Rule(
    name="last-wave",
    number=8,
    title="The last wave of blocks fills a part of the GPU only",
    needs="a GPU, the launches of the receipt and how many blocks a multiprocessor holds",
    explanation=f"""\
Looks at waves = blocks / (multiprocessors x blocks that each holds), of Runs with one launch and more than one wave
that are near to the time of their bytes and operations: far above it other faults hide this one (the tiled product here
wastes a fifth of its last wave, and was 90 times too slow).
Formula: 1 / (1 - p) with p = 1 - waves / ceil(waves), at most: blocks do not end together, and the last ones run
faster alone, so the promise begins at 1. It speaks from p = {LEAST} on, which is what 5 to 9 waves can lose: with
more of them nothing is left to gain.""",
    judge=_judge,
)
