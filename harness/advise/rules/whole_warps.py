"""Blocks of no whole number of warps."""

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
                edit=f"make the block {WARP * warps} threads (or {WARP * (warps - 1) or WARP}), and let threads beyond "
                "the work skip it",
            )
        )
    return None


RULE = Rule(
    name="whole-warps",
    number=9,
    title="Blocks end in a warp that is not full",
    needs="a GPU, and the launches of the receipt",
    explanation=f"""\
Looks at the threads of a block modulo {WARP}: the last warp issues all of its instructions for a part of its lanes.
Formula: 1 / (1 - p) with p = (1 / warps) (1 - rest / {WARP}), at most. Warps that are not full cost issue slots and
no bandwidth, so it speaks only where the time lies far above that of bytes and operations. No kernel here has such
blocks.""",
    judge=_judge,
)
