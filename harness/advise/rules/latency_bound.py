"""Far from every ceiling: latency or the issue of instructions sets the time."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import WAITED, Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.text import units

FAR = 1.5
REACHED = (0.4, 1.0)
MATRIX = 0.02
"""In place of the lower where a GPU's arithmetic is the limit, or may be."""
DENSE = 32
"""Operations for a byte from which on it may be: the ceiling of arithmetic is that of int8 on tensor cores, and a
kernel that multiplies float32 is at its own limit long before that."""

_EDITS = {
    (
        "device",
        "memory",
    ): "load 16 bytes a thread at a time, with several loads under way before the first is used; reduce within warps "
    "by shuffles in place of barriers in shared memory; read the input once; replace divisions by comparisons or "
    "products",
    (
        "device",
        "compute",
    ): "feed the dot-product or matrix instructions: tiles in registers and shared memory, the next tile loaded while "
    "this one is multiplied",
    ("host", "memory"): "work in whole vectors, several of them under way; fetch ahead; take one pass over the input",
    (
        "host",
        "compute",
    ): "use the dot-product instructions of the kernel's instruction set, with several independent accumulators; "
    "unpack once for several rows",
}


def _judge(evidence: Evidence) -> Finding | None:
    distance = evidence.t / evidence.usual
    if distance <= FAR:
        return None
    side = "compute" if evidence.limit == "compute" or evidence.ops >= DENSE * evidence.b else "memory"
    low = MATRIX if evidence.on_device and side == "compute" else REACHED[0]
    found = gain(low * distance, REACHED[1] * evidence.t / evidence.shared)
    if found is None:
        return None
    return Finding(
        evidence=(
            shared_facts.warm(evidence),
            shared_facts.least(evidence),
            Fact(name="t/R", value=f"{evidence.cap:.3g}", source="performance.hot.against.fraction"),
            Fact(
                name="least time with reads and writes on one way",
                value=units.time(evidence.shared),
                source="performance.read + performance.written, machine.ceilings: copy",
            ),
        ),
        gain=found,
        edit=_EDITS["device" if evidence.on_device else "host", side],
    )


RULE = Rule(
    name="latency-bound",
    number=4,
    title="Far from every ceiling: it waits for latency, or issues too many instructions",
    needs="the fraction of a ceiling; rates of copies make it sharper",
    explanation=f"""\
Looks at t over the time that the same bytes take at the rate of a copy in the cache (or memory) that holds them, or R
where that is longer, and on a GPU {WAITED} empty launches for what it waits for the one before: over {FAR} neither
bytes nor operations set the time. The ceiling is t/R; rules on compiled code say what to look at.
Formula: from {REACHED[0]} times that distance to {REACHED[1]} times the distance without those; from {MATRIX} where a
GPU's arithmetic is the limit or may be ({DENSE} operations for a byte and more), for its ceiling is what tensor cores
do with int8, whatever a kernel multiplies. Calibrated on the committed baselines (an H200, a Zen 4): of that time
tuned kernels reach 0.89 to 1.22 where they stream, 0.73 to 1.28 for quantizers of rows, 0.44 to 0.90 for one row of
int8 times row16 (0.38 to 0.42 times formats of others, 0.30 where activations keep 16 bits: these were tuned less),
0.39 to 1.05 on the host. {REACHED[0]} is for those. Products of many rows lie at 0.18 to 0.82, of 16-bit numbers at
0.23, of float32 at 0.02. The threshold: streaming kernels lie at 1.5 to 25 before tuning and at 0.93 to 1.12 after
it. The rule of thumb t > 1.7 R takes kernels for slow that read and write as much, as R is the longer of the two and
not both. suites/advise/score.py tells how often the promise is kept.""",
    judge=_judge,
)
