"""Launching takes a fifth of the time."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.text import units

SHARE = 0.2
BATCH = (2, 8)


def _judge(evidence: Evidence) -> Finding | None:
    launch, receipt = evidence.L, evidence.run.receipt
    if launch is None or receipt is None or not receipt.runs or not evidence.fastest:
        return None
    steps = max(1.0, receipt.launches / receipt.runs)
    t, each = evidence.t / steps, launch
    if each / t <= SHARE or each >= t:
        return None
    found = gain(*(n * t / (each + n * (t - each)) for n in (max(steps, least) for least in BATCH)))
    if found is None:
        return None
    what = "fuse the call's launches into one, or " if steps > 1 else ""
    return Finding(
        evidence=(
            shared_facts.warm(evidence),
            Fact(name="empty launch L", value=units.time(launch), source="machine.ceilings: launch"),
            Fact(name="launches a call", value=f"{steps:.3g}", source="receipt.launches / receipt.runs"),
            Fact(name="L/t of a launch", value=units.percent(each / t), source="the two above"),
        ),
        gain=found,
        edit=f"{what}do {BATCH[0]} to {BATCH[1]} calls' work in one launch: batch calls, or fuse the kernel with "
        "its neighbour",
    )


RULE = Rule(
    name="launch-share",
    number=5,
    title="Launching takes a large part of the time",
    needs="a device, the rate of empty launches, and the receipt's launches",
    explanation=f"""\
Looks at L/t, the time of an empty launch in a graph over that of one of the kernel's launches: over {SHARE} fusing or
batching pays.
Formula: n t / (L + n (t - L)) for n = {BATCH[0]} to {BATCH[1]} calls in one launch. It speaks for the fastest
variant of a workload only: a slower one is to be replaced first. At {SHARE} two calls in one gain 11 %, which is
above the noise of every timing on the baselines (e is 7 % at most); n ends at {BATCH[1]}, where at that share seven
eighths of all that can be gained are reached. The promise ends at t/R like every other, and R is at least L: the
caller may gain more.""",
    judge=_judge,
)
