"""Launches take a fifth of the time or more."""

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
            Fact(name="launches per call", value=f"{steps:.3g}", source="receipt.launches / receipt.runs"),
            Fact(name="L/t per launch", value=units.percent(each / t), source="the two above"),
        ),
        gain=found,
        edit=f"{what}do the work of {BATCH[0]} to {BATCH[1]} calls in one launch: batch calls, or fuse the kernel with "
        "an adjacent one",
    )


RULE = Rule(
    name="launch-share",
    number=5,
    title="Launches take a large part of the time",
    needs="a device, the rate of empty launches, and the receipt's launches",
    explanation=f"""\
Condition: L/t > {SHARE}, the time of an empty launch in a graph over the time of one launch of the kernel.
Formula: n t / (L + n (t - L)) for n = {BATCH[0]} to {BATCH[1]} calls in one launch. Only for the fastest variant of a
workload: replace a slower one first. The gain is limited to t/R, as for every rule; R is at least L, so the caller may
gain more. Threshold {SHARE}: two calls in one launch then gain 11 %, more than the noise e of each timing on the
baselines (7 % at most). n = {BATCH[1]} reaches seven eighths of the possible gain at that share.""",
    judge=_judge,
)
