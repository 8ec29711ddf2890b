"""Copies to the device and back take longer than the kernel."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.text import units


def _judge(evidence: Evidence) -> Finding | None:
    up, down = evidence.run.upload, evidence.run.download
    if up is None or down is None or not evidence.fastest or up.ns + down.ns <= evidence.t:
        return None
    parts = (up.ns, down.ns, evidence.t)
    found = gain(1.0, sum(parts) / evidence.t)
    if found is None:
        return None
    return Finding(
        evidence=(
            shared_facts.warm(evidence),
            Fact(
                name="copy of the inputs to the device",
                value=f"{units.time(up.ns)} for {units.size(up.nbytes)}",
                source="upload.ns",
            ),
            Fact(
                name="copy of the outputs to the host",
                value=f"{units.time(down.ns)} for {units.size(down.nbytes)}",
                source="download.ns",
            ),
        ),
        gain=found,
        edit="keep inputs and outputs on the device between calls; copy the rest from pinned memory, in parts, on a "
        "second stream in parallel to the kernel",
    )


RULE = Rule(
    name="transfer",
    number=20,
    title="Copies between host and device take longer than the kernel",
    needs="a device and timed copies (Run.upload, Run.download)",
    explanation="""\
Condition: the copies of inputs and outputs together take longer than t.
Formula: 1 to (up + down + t) / t; a caller whose data stays on the device gains nothing. Only for the fastest variant.
The copies are not part of t, so the gain is the caller's. It is limited to t/R, as for every rule.""",
    figure="",
    judge=_judge,
)
