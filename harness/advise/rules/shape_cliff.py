"""A larger shape is faster."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import over
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact, Run
from tritmark.harness.text import units

CLIFF = 1.15


def _holds(run: Run, evidence: Evidence) -> bool:
    """Whether the Run's shape contains the shape of `evidence`, with at least as much work and the same family."""
    own, larger = evidence.run.workload, run.workload
    if run.performance.read + run.performance.written < evidence.b or run.performance.operations < evidence.ops:
        return False
    return (
        own.axes.keys() == larger.axes.keys()
        and own.family == larger.family
        and all(own.axes[axis] <= larger.axes[axis] for axis in own.axes)
    )


def _judge(evidence: Evidence) -> Finding | None:
    hot = evidence.run.performance.hot
    assert hot is not None
    enough = hot.timing.median_ns / CLIFF
    quicker = [
        (each.timing.median_ns, each, run) for run in evidence.neighbours if (each := run.performance.hot) is not None
    ]
    larger = [found for found in quicker if found[0] < enough and _holds(found[2], evidence)]
    if not larger:
        return None
    _, faster, run = min(larger, key=lambda found: found[0])
    found = over(hot.timing, faster.timing)
    padding = ", ".join(
        f"{axis} from {size} to {run.workload.axes[axis]}"
        for axis, size in evidence.run.workload.axes.items()
        if size != run.workload.axes[axis]
    )
    if found is None:
        return None
    return Finding(
        evidence=(
            shared_facts.warm(evidence),
            shared_facts.sibling(run),
            Fact(
                name="t / time of the other Run",
                value=units.number(hot.timing.median_ns / faster.timing.median_ns),
                source="the two above",
            ),
        ),
        gain=found,
        edit=f"pad {padding}, or make the path for the tail of the axis as fast as the path for whole tiles",
    )


RULE = Rule(
    name="shape-cliff",
    number=19,
    title="A larger shape is faster",
    needs="Runs of the same kernel at other shapes in the same Record",
    explanation=f"""\
Condition: the kernel takes 1/{CLIFF} of the time or less at a shape that is at least as large on each axis and has at
least as much work. The smaller shape takes a slow path: a tail, a bank conflict, too few blocks.
Formula: t / t(larger shape), from the 95 % intervals of both. Threshold {CLIFF}: 1 plus twice the widest noise e of the
baselines (7 %), because shapes are not interleaved.""",
    judge=_judge,
)
