"""The way to the device and back takes longer than the kernel."""

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
                name="inputs to the device",
                value=f"{units.time(up.ns)} for {units.size(up.nbytes)}",
                source="upload.ns",
            ),
            Fact(
                name="outputs back", value=f"{units.time(down.ns)} for {units.size(down.nbytes)}", source="download.ns"
            ),
        ),
        gain=found,
        edit="keep inputs and outputs on the device between calls; what has to move: from pinned memory, in pieces, on "
        "a second stream beside the kernel",
    )


RULE = Rule(
    name="transfer",
    number=20,
    title="Copies between host and device take longer than the kernel",
    needs="a device and timed copies (Run.upload, Run.download)",
    explanation="""\
Looks at the copies' time against t: where both together take longer, a caller that copies each time waits for copies.
Formula: 1 to (up + down + t) / t: nothing for a caller whose data stays on the device already. It speaks for the
fastest variant only. The copies are not in t: what is gained is the caller's; the promise ends at t/R like every
other. No threshold but t itself.""",
    judge=_judge,
)
