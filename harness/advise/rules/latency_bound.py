"""Far from every ceiling: latency or instruction issue limits the time."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import INTENSE, WAITED, Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.ladder import has, ladder
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.text import units

FAR = 1.5
REACHED = (0.4, 1.0)
MATRIX = 0.02
"""Lower factor if arithmetic limits, or may limit, a GPU kernel."""
DENSE = 32
"""Operations per byte from which arithmetic may limit. The compute ceiling is int8 on tensor cores, and a kernel with
float32 products reaches its own limit far below it."""

_EDITS = {
    (
        "device",
        "memory",
    ): "load 16 bytes per thread, with several loads in flight before the first use; reduce within warps by shuffles "
    "instead of barriers in shared memory; read the input once; replace divisions by comparisons or products",
    (
        "device",
        "compute",
    ): "use dot-product or matrix instructions: tiles in registers and shared memory, with the next tile loaded while "
    "this one is multiplied",
    ("host", "memory"): "use full vectors, several in flight; prefetch; read the input in one pass",
    (
        "host",
        "compute",
    ): "use the dot-product instructions of the kernel's instruction set, with several independent accumulators; "
    "unpack once for several rows",
}


def _judge(evidence: Evidence) -> Finding | None:
    distance = evidence.t / max(evidence.usual, evidence.own)
    if distance <= FAR or _unknown(evidence):
        return None
    side = "compute" if evidence.limit == "compute" or evidence.ops >= DENSE * evidence.b else "memory"
    low = MATRIX if evidence.on_device and side == "compute" else REACHED[0]
    found = gain(low * distance, REACHED[1] * evidence.t / max(evidence.shared, evidence.own))
    if found is None:
        return None
    return Finding(
        evidence=(
            shared_facts.warm(evidence),
            shared_facts.least(evidence),
            Fact(name="t/R", value=f"{evidence.cap:.3g}", source="performance.hot.against.fraction"),
            Fact(
                name="time of reads plus writes at the copy rate",
                value=units.time(evidence.shared),
                source="performance.read + performance.written, machine.ceilings: copy",
            ),
            *(
                (
                    Fact(
                        name="time of the operations with its instruction set",
                        value=units.time(evidence.own),
                        source=f"performance.operations, machine.ceilings: compute {evidence.run.variant}",
                    ),
                )
                if evidence.own
                else ()
            ),
        ),
        gain=found,
        edit=_EDITS["device" if evidence.on_device else "host", side],
    )


def _unknown(evidence: Evidence) -> bool:
    """Whether a product runs with a lesser instruction set than the best one here, and no ceiling has its rate. Then
    the distance from a ceiling of another set predicts nothing."""
    sets = list(ladder())
    if evidence.on_device or evidence.own or evidence.run.variant not in sets or evidence.ops < INTENSE * evidence.b:
        return False
    better = sets[sets.index(evidence.run.variant) + 1 :]
    return any(has(evidence.machine.features, name) for name in better)


RULE = Rule(
    name="latency-bound",
    number=4,
    title="Far from every ceiling: latency or the number of instructions limits the time",
    needs="the fraction of a ceiling; copy rates make it more precise",
    explanation=f"""\
Condition: distance = t / (c + w) > {FAR}. c is the time of the bytes at the copy rate of the cache or memory that holds
them, or R if that is longer. w is {WAITED} empty launches on a GPU, for the wait on the previous launch, and 0 on the
host. If the kernel's instruction set is not the best one of the processor, c is also at least the time of the
operations at the rate of its own set. A product of a lesser set without such a ceiling (older Records) gets no
prediction. Then neither bytes nor operations limit the time. Rules on compiled code give more specific causes.
Formula: from {REACHED[0]} times the distance to {REACHED[1]} times t / c, limited to t/R. The lower factor is {MATRIX}
if arithmetic limits or may limit a GPU kernel ({DENSE} operations per byte or more), because that ceiling is int8 on
tensor cores, also for other products.
Calibration on the committed baselines (H200, Zen 4): tuned kernels have (c + w) / t of 0.89 to 1.22 if they stream,
0.73 to 1.28 for quantizers of rows, 0.44 to 0.90 for one row of int8 with row16, 0.38 to 0.42 with other projects'
formats, 0.30 with 16-bit activations (the last two were tuned less), and 0.39 to 1.05 on the host. Products of many
rows have 0.18 to 0.82, 16-bit products 0.23, float32 products 0.02.
Threshold: streaming kernels have a distance of 1.5 to 25 before tuning and 0.93 to 1.12 after it. The rule of thumb
t > 1.7 R would include kernels that read and write equal amounts, because R is only the longer of the two.
suites/advise/score.py reports how often the prediction is correct.""",
    judge=_judge,
)
