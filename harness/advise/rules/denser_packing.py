"""Fewer bits per weight, if memory limits the time."""

from __future__ import annotations

from math import log2

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact

NEAR = 1.15
DENSE_BITS = 1.6
"""Five ternary weights per byte: 3^5 = 243 of 256 values."""
FLOOR_BITS = log2(3)


def _judge(evidence: Evidence) -> Finding | None:
    bits = evidence.run.memory.bits_per_weight
    if bits is None or bits <= DENSE_BITS or not evidence.memory_side or evidence.cap > NEAR:
        return None
    found = gain(1.0, bits / DENSE_BITS)
    if found is None:
        return None
    return Finding(
        evidence=(
            shared_facts.warm(evidence),
            shared_facts.least(evidence),
            Fact(name="bits per weight", value=f"{bits:.3g} bit", source="memory.bits_per_weight"),
        ),
        gain=found,
        edit=f"pack five weights per byte ({DENSE_BITS} bits each; the minimum is log2 3 = {FLOOR_BITS:.3f}) and "
        f"unpack in registers: {bits:.3g}/{DENSE_BITS} = {bits / DENSE_BITS:.3g} times fewer bytes of weights",
    )


RULE = Rule(
    name="denser-packing",
    number=3,
    title="Only fewer bytes can make it faster",
    needs="bits per weight (the memory dimension), and the fraction of a read or write ceiling",
    explanation=f"""\
Condition: reads or writes set R, and t/R is at most {NEAR}: the kernel moves its bytes almost at the ceiling.
Formula: 1 to bits_old/{DENSE_BITS}, which is 1.25 from 2 bits; the minimum is log2 3 = {FLOOR_BITS:.3f} bits. It begins
at 1, because unpacking five weights takes more instructions than four. The gain is limited to t/R of the current
format, which is conservative: a denser format has a smaller R. Threshold {NEAR}: "within 15 % of the roof" in the
literature; no Record compares two packings yet.""",
    judge=_judge,
)
