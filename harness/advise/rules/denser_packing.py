"""Where memory sets the time, fewer bits a weight."""

from __future__ import annotations

from math import log2

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact

NEAR = 1.15
DENSE_BITS = 1.6
"""Five ternary weights in a byte: 3^5 = 243 of 256 values."""
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
            Fact(name="bits a weight", value=f"{bits:.3g} bit", source="memory.bits_per_weight"),
        ),
        gain=found,
        edit=f"pack five weights in a byte ({DENSE_BITS} bits; no packing goes under log2 3 = {FLOOR_BITS:.3f}) and "
        f"unpack in registers: {bits:.3g}/{DENSE_BITS} = {bits / DENSE_BITS:.3g} times fewer bytes of weights",
    )


RULE = Rule(
    name="denser-packing",
    number=3,
    title="Only fewer bytes can make it faster",
    needs="bits a weight (the memory dimension) and a fraction of a reading or writing ceiling",
    explanation=f"""\
Looks at t/R where reading or writing sets R: at most {NEAR}, so the kernel moves its bytes about as fast as the machine
can.
Formula: bits_old/{DENSE_BITS}, at most 1.25 from 2 bits; the floor is log2 3 = {FLOOR_BITS:.3f} bits. The promise
ends at t/R of the format that ran, as every promise does, which is the cautious side: another format has another R.
It begins at 1, as unpacking five weights takes more instructions than four. {NEAR} is the literature's "within 15 %
of the roof": no Record compares two packings yet by which to calibrate it.""",
    judge=_judge,
)
