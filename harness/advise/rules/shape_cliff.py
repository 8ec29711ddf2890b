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
    """The Run's shape holds the other one and is no less work, with the same input family."""
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
                name="t over that",
                value=units.number(hot.timing.median_ns / faster.timing.median_ns),
                source="the two above",
            ),
        ),
        gain=found,
        edit=f"pad {padding}, or give the tail of the axis a path as fast as the whole tiles'",
    )


RULE = Rule(
    name="shape-cliff",
    number=19,
    title="A larger shape is faster",
    needs="the same kernel's Runs at other shapes in the same Record",
    explanation=f"""\
Looks at the same kernel's times at shapes that are at least as large on every axis and at least as much work: where one
takes 1/{CLIFF} of the time or less, the smaller shape meets a slow path (a tail, a bank conflict, too few blocks).
Formula: t(K) / t(padded), from the 95 % intervals of both. Shapes are not measured by turns: {CLIFF} is twice the
widest noise e of the baselines (7 %) above 1.""",
    judge=_judge,
)
