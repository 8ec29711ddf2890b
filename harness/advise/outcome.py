"""From two Runs, before and after, to what came of a promise."""

from __future__ import annotations

from collections.abc import Iterable

from tritmark.harness.advise.advise import advise
from tritmark.harness.advise.ledger import NAME as LEDGER
from tritmark.harness.advise.ledger import Ledger, LedgerEntry, MeasuredGain, add, read
from tritmark.harness.errors import UsageError
from tritmark.harness.record import Measurement, Proposal, Record, Run
from tritmark.harness.store import Store
from tritmark.harness.store import read as read_record

ADDRESSED = "addressed"


def beside(record: Record, proposal: Proposal, before: Run, after: Run, change: str) -> LedgerEntry:
    """Of a promise about a Run, where a sibling on the same workload in the same Record shows what the change
    brings."""
    old, new = _hot(before).timing, _hot(after).timing
    found = MeasuredGain(
        median=old.median_ns / new.median_ns, low=old.low_ns / new.high_ns, high=old.high_ns / new.low_ns
    )
    return _outcome(record, proposal, before, after.kernel, found, change)


def later(earlier: Record, proposal: Proposal, before: Run, after_record: Record, after: Run) -> LedgerEntry:
    """Of a promise that a later Record follows.

    Two Records are two sessions, between which a machine's speed changes: where the same ceiling limits both Runs, each
    was measured by turns with it, and it is the fractions of it that are compared.
    """
    old, new = _hot(before), _hot(after)
    if (old.against.ceiling, old.against.work, old.footprint) == (new.against.ceiling, new.against.work, new.footprint):
        was, is_ = old.against.fraction, new.against.fraction
        found = MeasuredGain(median=is_.median / was.median, low=is_.low / was.high, high=is_.high / was.low)
    else:
        a, b = old.timing, new.timing
        found = MeasuredGain(median=a.median_ns / b.median_ns, low=a.low_ns / b.high_ns, high=a.high_ns / b.low_ns)
    return _outcome(earlier, proposal, before, after_record.id, found, ADDRESSED)


def follow_up(earlier: Record, record: Record) -> tuple[LedgerEntry, ...]:
    """What came of the promises of the rule that `record` addresses, as `earlier` held them, for each Run that both
    have on one machine."""
    if not record.addresses or earlier.machine.id != record.machine.id:
        return ()
    after = {run.place: run for run in record.runs if run.performance.hot is not None and run.passed}
    before = {run.id: run for run in earlier.runs}
    promised = [each for each in advise(earlier) if each.rule == record.addresses]
    return tuple(
        later(earlier, proposal, before[proposal.run], record, after[before[proposal.run].place])
        for proposal in promised
        if before[proposal.run].place in after
    )


def settle(store: Store, record: Record) -> tuple[LedgerEntry, ...]:
    """Put what came of the rule that `record` addresses into the ledger, against the newest earlier Record that
    promised something there.

    Raises UsageError where no earlier Record of this machine did.
    """
    for id in reversed([each for each in store.records() if each < record.id]):
        found = follow_up(read_record(store.path(id)), record)
        if found:
            add(store.out / LEDGER, found)
            return found
    raise UsageError(
        f"--addresses {record.addresses}: no earlier Record in {store.runs} of this machine has that rule's "
        "proposal for these kernels and workloads; measure the kernel as it was, too, and mind that a Run that "
        "failed counts for nothing"
    )


def ledger_of(store: Store) -> Ledger:
    """The ledger beside the store's Records."""
    return read(store.out / LEDGER)


def inside(outcomes: Iterable[LedgerEntry]) -> float | None:
    """The share of hits; None of no outcomes."""
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


def _hot(run: Run) -> Measurement:
    assert run.performance.hot is not None
    return run.performance.hot
