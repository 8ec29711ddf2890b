"""Proposals from a Record: rules judge each timed Run, guards remove gains that are not certain, and `rank` sorts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tritmark.harness.advise.evidence import Evidence, RunIndex
from tritmark.harness.advise.interval import capped
from tritmark.harness.advise.rank import rank
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.advise.rules import RULES
from tritmark.harness.record import Fact, Gain, Proposal, Record, Run
from tritmark.harness.text import commands, units
from tritmark.harness.text.visible import quoted


def advise(
    record: Record, weights: Mapping[str, float] | None = None, rules: Iterable[Rule] = RULES
) -> tuple[Proposal, ...]:
    """The proposals in the order of `rank`, without those that a sibling already implements (`Rule.moot`).

    A gain is at most t/R. Gains of one Run are alternatives and do not add up. `weights`: see `rank`.
    """
    around, rules = RunIndex(record), tuple(rules)
    found: list[Proposal] = []
    for run in measured(record):
        evidence = Evidence(record, run, around)
        found += of_run(evidence, [rule for rule in rules if rule.moot is None or not rule.moot(evidence)])
    return tuple(each for ranked in rank(record, found, weights) for each in ranked.proposals)


def of_run(evidence: Evidence, rules: Iterable[Rule] = RULES) -> tuple[Proposal, ...]:
    """The proposals for one Run that no guard forbids, in the order of the rules."""
    rules = tuple(rules)
    findings = ((rule, rule.judge(evidence)) for rule in rules)
    predicted = (
        (rule, finding, capped(finding.gain, evidence.cap)) for rule, finding in findings if finding is not None
    )
    return tuple(
        _proposal(evidence, rule, finding, gain)
        for rule, finding, gain in predicted
        if not _forbidden(evidence, gain, rules)
    )


def forbidden(evidence: Evidence) -> tuple[Rule, str] | None:
    """The guard that forbids even the largest gain up to this Run's ceiling, and why; None if there is none."""
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


def _proposal(evidence: Evidence, rule: Rule, finding: Finding, gain: Gain) -> Proposal:
    record, run = evidence.record, evidence.run
    reproduce = commands.of_run(record, run)
    checked = record.environment.command[1:2] == ("check",)
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
        verify=reproduce if checked or not rule.figure else f"{reproduce} --addresses {quoted(rule.name)}",
    )


def _outrun(evidence: Evidence) -> tuple[Fact, ...]:
    """The fastest sibling, if it is faster than this kernel."""
    if evidence.fastest:
        return ()
    hot = {
        run.variant: run.performance.hot.timing.median_ns
        for run in evidence.siblings
        if run.performance.hot is not None
    }
    best = min(hot, key=lambda variant: hot[variant])
    return (Fact(name="faster variant", value=f"{best}, {units.time(hot[best])}", source="its performance.hot"),)


def measured(record: Record) -> tuple[Run, ...]:
    """The Runs with a usable hot figure: a time and a fraction of the ceiling above 0."""
    hot = ((run, run.performance.hot) for run in record.runs)
    return tuple(
        run
        for run, figure in hot
        if figure is not None and not run.peer and figure.timing.median_ns > 0 and figure.against.fraction.median > 0
    )
