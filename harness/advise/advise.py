"""From a Record to proposals: rules judge every Run that was timed, guards say what may be promised, and the surest
gain comes first.

Kernels that a sibling outruns come after all others: whoever has the faster one already gains nothing by tuning the
slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tritmark.harness.advise.evidence import Around, Evidence
from tritmark.harness.advise.interval import capped
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.advise.rules import RULES
from tritmark.harness.record import Fact, Gain, Proposal, Record, Run
from tritmark.harness.text import commands, units
from tritmark.harness.text.visible import quoted


def advise(
    record: Record, weights: Mapping[str, float] | None = None, rules: Iterable[Rule] = RULES
) -> tuple[Proposal, ...]:
    """What could be changed, the surest gain first, of kernels that no sibling outruns before that of others.

    A gain ends at t/R. Gains of one Run overlap: they are alternatives and are never added. `weights` is how much of a
    rule's lower bound counts in the order, 1 for a rule that is not in it; see `Ledger.weights`.
    """
    around = Around(record)
    known = weights or {}
    found = []
    for run in measured(record):
        evidence = Evidence(record, run, around)
        for each in of_run(evidence, rules):
            low, high = _rank(each.gain, known.get(each.rule, 1.0))
            found.append(((not evidence.fastest, -low, -high, each.rule, each.run), each))
    return tuple(each for _, each in sorted(found, key=lambda both: both[0]))


def of_run(evidence: Evidence, rules: Iterable[Rule] = RULES) -> tuple[Proposal, ...]:
    """What the rules propose for one Run and no guard forbids, in the order of the rules."""
    rules = tuple(rules)
    findings = ((rule, rule.judge(evidence)) for rule in rules)
    promised = (
        (rule, finding, capped(finding.gain, evidence.cap)) for rule, finding in findings if finding is not None
    )
    return tuple(
        _proposal(evidence, rule, finding, gain)
        for rule, finding, gain in promised
        if not _forbidden(evidence, gain, rules)
    )


def forbidden(evidence: Evidence) -> tuple[Rule, str] | None:
    """The guard that would forbid even the largest gain that this Run's ceiling leaves, and why; None where none
    does."""
    most = Gain(low=1.0, high=evidence.cap)
    return next(
        (
            (rule, why)
            for rule in RULES
            if rule.forbids is not None and (why := rule.forbids(evidence, most)) is not None
        ),
        None,
    )


def _forbidden(evidence: Evidence, gain: Gain, rules: Iterable[Rule]) -> bool:
    return any(rule.forbids is not None and rule.forbids(evidence, gain) is not None for rule in rules)


def _rank(gain: Gain, weight: float) -> tuple[float, float]:
    return 1 + weight * (gain.low - 1), 1 + weight * (gain.high - 1)


def _proposal(evidence: Evidence, rule: Rule, finding: Finding, gain: Gain) -> Proposal:
    record, run = evidence.record, evidence.run
    reproduce = commands.of_run(record, run)
    return Proposal(
        rule=rule.name,
        run=run.id,
        kernel=run.kernel,
        workload=run.workload.id,
        title=rule.title,
        evidence=(*finding.evidence, *_outrun(evidence)),
        gain=gain,
        ceiling=evidence.cap,
        edit=finding.edit,
        reproduce=reproduce,
        verify=f"{reproduce} --addresses {quoted(rule.name)}",
    )


def _outrun(evidence: Evidence) -> tuple[Fact, ...]:
    """The sibling that is the fastest, where that is another kernel."""
    if evidence.fastest:
        return ()
    hot = {
        run.variant: run.performance.hot.timing.median_ns
        for run in evidence.siblings
        if run.performance.hot is not None
    }
    best = min(hot, key=lambda variant: hot[variant])
    return (
        Fact(name="a faster kernel is here", value=f"{best}, {units.time(hot[best])}", source="its performance.hot"),
    )


def measured(record: Record) -> tuple[Run, ...]:
    """The Runs that have a hot figure, and one from which something follows: a time and a fraction of the ceiling
    above 0."""
    hot = ((run, run.performance.hot) for run in record.runs)
    return tuple(
        run
        for run, figure in hot
        if figure is not None and not run.peer and figure.timing.median_ns > 0 and figure.against.fraction.median > 0
    )
