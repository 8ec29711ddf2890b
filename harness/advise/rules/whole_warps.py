"""Block sizes that are not a multiple of the warp size."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact

WARP = 32


def _judge(evidence: Evidence) -> Finding | None:
    for each in code_facts.ran(evidence):
        rest = each.threads % WARP
        if not rest or not code_facts.far(evidence):
            continue
        warps = -(-each.threads // WARP)
        share = (1 - rest / WARP) / warps
        found = gain(1.0, 1 / (1 - share))
        return (
            None
            if found is None
            else Finding(
                evidence=(
                    *each.facts,
                    Fact(name="threads in the last warp", value=f"{rest} of {WARP}", source="receipt.launched"),
                    code_facts.distance(evidence),
                ),
                gain=found,
                edit=f"use blocks of {WARP * warps} threads (or {WARP * (warps - 1) or WARP}), and let surplus threads "
                "skip the work",
            )
        )
    return None


RULE = Rule(
    name="whole-warps",
    number=9,
    title="The last warp of each block is not full",
    needs="a GPU, and the launches of the receipt",
    explanation=f"""\
Condition: the threads of a block modulo {WARP} are not 0, and the time is far above the time of bytes and operations.
The last warp issues all instructions for a part of its lanes. This costs issue slots, but no bandwidth.
Formula: 1 to 1 / (1 - p), p = (1 / warps) (1 - rest / {WARP}). No kernel here has such blocks.""",
    judge=_judge,
)
