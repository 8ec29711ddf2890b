"""A better instruction set is available."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import LEAST_GAIN, Evidence
from tritmark.harness.advise.interval import over
from tritmark.harness.advise.ladder import has, ladder
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact


def _judge(evidence: Evidence) -> Finding | None:
    run, hot = evidence.run, evidence.run.performance.hot
    assert hot is not None
    sets = list(ladder())
    if evidence.on_device or run.variant not in sets:
        return None
    better = [
        (each.performance.hot, each)
        for each in evidence.siblings
        if each.variant in sets[sets.index(run.variant) + 1 :]
        and has(evidence.machine.features, each.variant)
        and each.performance.hot is not None
    ]
    if not better:
        return None
    best, sibling = min(better, key=lambda each: each[0].timing.median_ns)
    found = over(hot.timing, best.timing)
    if found is None or hot.timing.median_ns <= (1 + LEAST_GAIN) * best.timing.median_ns:
        return None
    return Finding(
        evidence=(
            shared_facts.warm(evidence),
            shared_facts.sibling(sibling),
            Fact(
                name="features used by the better set",
                value=", ".join(sorted(ladder()[sibling.variant])),
                source="machine.features",
            ),
        ),
        gain=found,
        edit=f"run {sibling.variant} instead of {run.variant}: do not force the lower instruction set",
    )


RULE = Rule(
    name="better-isa",
    number=22,
    title="The processor has a better instruction set than the one that ran",
    needs="the processor's features, and a Run of the op's variant for a better set in the same Record",
    explanation="""\
Condition: the processor supports a better instruction set than the one that ran, and a sibling for it is faster on the
same workload.
Formula: t over the time of the fastest such sibling, from the 95 % intervals of both. Threshold: 1 % and the noise.
Without a Run of such a sibling the rule does not apply, and the Record's list of missing evidence has the command that
measures one.""",
    judge=_judge,
)
