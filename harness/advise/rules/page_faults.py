"""Each call touches fresh pages."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.text import units


def _judge(evidence: Evidence) -> Finding | None:
    memory, t = evidence.run.memory, evidence.t
    rate = evidence.ceiling("write", "memory")
    if evidence.on_device or rate is None or not memory.page_faults or memory.page_faults < 1:
        return None
    zeroing = memory.page_faults * evidence.machine.page_size * 1e9 / rate
    if zeroing >= t:
        return None  # the faults were not in the timed calls
    found = gain(1.0, t / (t - zeroing))
    if found is None:
        return None
    return Finding(
        evidence=(
            shared_facts.warm(evidence),
            Fact(
                name="pages touched for the first time in a call",
                value=units.number(memory.page_faults),
                source="memory.page_faults",
            ),
            Fact(name="allocated in a call", value=units.size(memory.allocated), source="memory.allocated"),
            Fact(
                name="time to fill them with zeros", value=units.time(zeroing), source="machine.ceilings: write, memory"
            ),
        ),
        gain=found,
        edit="take outputs and workspace from the caller (`out=`), allocate once and reuse; request huge pages for "
        "large arrays (madvise MADV_HUGEPAGE)",
    )


RULE = Rule(
    name="page-faults",
    number=28,
    title="Each call touches fresh pages",
    needs="page faults of a call (the memory dimension) and the write rate of memory, on the host",
    explanation="""\
Condition: a call touches at least one page for the first time. The system fills each such page with zeros.
Formula: 1 to t / (t - z), z the time to write as many zeros at the measured rate. The cost of the page fault itself is
not measured and not included, so the actual gain is larger. Threshold: the noise.""",
    judge=_judge,
)
