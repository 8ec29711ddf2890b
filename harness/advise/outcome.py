"""The outcome of a prediction from two Runs, before and after the change."""

from __future__ import annotations

from collections.abc import Iterable

from tritmark.harness.advise.advise import advise
from tritmark.harness.advise.ledger import NAME as LEDGER
from tritmark.harness.advise.ledger import Ledger, LedgerEntry, MeasuredGain, add, read
from tritmark.harness.advise.rules import RULES
from tritmark.harness.errors import UsageError
from tritmark.harness.record import Measurement, Proposal, Record, Run
from tritmark.harness.store import Store
from tritmark.harness.store import read as read_record

ADDRESSED = "addressed"


def beside(record: Record, proposal: Proposal, before: Run, after: Run, change: str) -> LedgerEntry:
    """The outcome of a prediction by a sibling with the change, on the same workload in the same Record."""
    old, new = _figure(before, "hot").timing, _figure(after, "hot").timing
    found = MeasuredGain(
        median=old.median_ns / new.median_ns, low=old.low_ns / new.high_ns, high=old.high_ns / new.low_ns
    )
    return _outcome(record, proposal, before, after.kernel, found, change)


def later(earlier: Record, proposal: Proposal, before: Run, after_record: Record, after: Run) -> LedgerEntry:
    """The outcome of a prediction by a later Record.

    The figures that are compared are those of the rule (`Rule.figure`). The speed of a machine changes between
    sessions. If the same ceiling limits both Runs, the fractions of the ceiling, which were interleaved with it, are
    compared in place of the times.
    """
    figure = next(rule.figure for rule in RULES if rule.name == proposal.rule)
    old, new = _figure(before, figure), _figure(after, figure)
    if (old.against.ceiling, old.against.work, old.footprint) == (new.against.ceiling, new.against.work, new.footprint):
        was, is_ = old.against.fraction, new.against.fraction
        found = MeasuredGain(median=is_.median / was.median, low=is_.low / was.high, high=is_.high / was.low)
    else:
        a, b = old.timing, new.timing
        found = MeasuredGain(median=a.median_ns / b.median_ns, low=a.low_ns / b.high_ns, high=a.high_ns / b.low_ns)
    return _outcome(earlier, proposal, before, after_record.id, found, ADDRESSED)


def follow_up(earlier: Record, record: Record) -> tuple[LedgerEntry, ...]:
    """The outcomes of the predictions in `earlier` by the rule that `record` addresses, for each Run that both Records
    have on one machine. Empty for a rule whose gain no figure shows."""
    if not record.addresses or earlier.machine.id != record.machine.id:
        return ()
    figure = next((rule.figure for rule in RULES if rule.name == record.addresses), "")
    if not figure:
        return ()
    after = {run.place: run for run in record.runs if run.passed and _timed(run, figure)}
    before = {run.id: run for run in earlier.runs}
    predicted = [each for each in advise(earlier) if each.rule == record.addresses]
    return tuple(
        later(earlier, proposal, before[proposal.run], record, after[before[proposal.run].place])
        for proposal in predicted
        if before[proposal.run].place in after
    )


def settle(store: Store, record: Record) -> tuple[LedgerEntry, ...]:
    """Add the outcomes of the rule that `record` addresses to the ledger, from the newest earlier Record with a
    prediction for it.

    Raises UsageError if no earlier Record of this machine has one.
    """
    for id in reversed([each for each in store.records() if each < record.id]):
        found = follow_up(read_record(store.path(id)), record)
        if found:
            add(store.out / LEDGER, found)
            return found
    raise UsageError(
        f"--addresses {record.addresses}: no earlier Record of this machine in {store.runs} has a proposal of that "
        "rule for these kernels and workloads; measure the kernel without the change too (failed Runs do not count)"
    )


def ledger_of(store: Store) -> Ledger:
    """The ledger beside the store's Records."""
    return read(store.out / LEDGER)


def inside(outcomes: Iterable[LedgerEntry]) -> float | None:
    """The share of hits; None without outcomes."""
    hits = [outcome.hit for outcome in outcomes]
    return sum(hits) / len(hits) if hits else None


def _outcome(
    record: Record, proposal: Proposal, before: Run, after: str, found: MeasuredGain, change: str
) -> LedgerEntry:
    return LedgerEntry(
        rule=proposal.rule,
        kernel=before.kernel,
        workload=before.workload.id,
        threads=before.threads,
        machine=record.machine.id,
        before=record.id,
        after=after,
        predicted=proposal.gain,
        measured=found,
        change=change,
    )


def _timed(run: Run, figure: str) -> bool:
    return (run.performance.cold if figure == "cold" else run.performance.hot) is not None


def _figure(run: Run, figure: str) -> Measurement:
    found = run.performance.cold if figure == "cold" else run.performance.hot
    assert found is not None
    return found
