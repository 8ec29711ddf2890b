"""Far from every ceiling: latency or the issue of instructions sets the time."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts as told
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.text import units

FAR = 1.5
REACHED = (0.4, 1.0)
MATRIX = 0.05
"""In place of the lower where a GPU's arithmetic is the limit."""

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
    ): "use the widest dot-product instructions, with several independent accumulators; unpack once for several rows",
}


def _judge(evidence: Evidence) -> Finding | None:
    distance = evidence.t / evidence.shared
    if distance <= FAR:
        return None
    side = "memory" if evidence.memory_side else "compute"
    low = MATRIX if evidence.on_device and side == "compute" else REACHED[0]
    found = gain(low * distance, REACHED[1] * distance)
    if found is None:
        return None
    return Finding(
        evidence=(
            told.warm(evidence),
            told.least(evidence),
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
where that is longer: over {FAR} neither bytes nor operations set the time. The ceiling is t/R; rules on compiled code
say what to look at.
Formula: from {REACHED[0]} to {REACHED[1]} times that distance; from {MATRIX} where a GPU's arithmetic is the limit,
for its ceiling is what tensor cores do with int8, whatever a kernel multiplies. Calibrated on the committed
baselines (an H200, a Zen 4): of that time tuned kernels reach 0.91 to 0.98 where they stream from the GPU's memory,
0.6 and more within its L2, 0.41 to 0.83 for one-row products, 0.58 to 0.70 for quantizers of rows, 0.39 to 1.05 on
the host. {REACHED[0]} holds all of them, whichever op is left out, but the 16-bit matrix products, which lie at
0.09: {MATRIX} is for those. The threshold: streaming kernels lie at 1.5 to 25 before tuning and at 1.02 to 1.10
after it. The rule of thumb t > 1.7 R takes kernels for slow that read and write as much, as R is the longer of the
two and not both. suites/advise/score.py tells how often the promise is kept.""",
    judge=_judge,
)
