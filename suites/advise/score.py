"""How good is the advice? The rules against this project's own kernels, before and after tuning, on the same workloads
of one Record.

    python suites/advise/score.py [RECORD.json ...] [--code] [--write]

For each Run of a kernel as it was before: every rule that fires has to name a change that was in fact made (made.toml),
and what the fastest tuned sibling gained has to lie in the predicted interval. For a kernel at 90 % of its ceiling no
rule may predict over 1.15x. `--write` puts the outcomes into results/ledger.json. Exit status 1 where a figure is not
reached.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from made import ROOT, Made, made

from tritmark.harness.advise.advise import measured, of_run
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.ledger import GOAL, NAME, Ledger, LedgerEntry, add
from tritmark.harness.advise.outcome import beside, inside
from tritmark.harness.advise.rules import RULES
from tritmark.harness.record import Proposal, Record
from tritmark.harness.store import read

NEAR, MOST = 0.9, 1.15


@dataclass(frozen=True)
class Near:
    """What is predicted for kernels at NEAR of their ceiling."""

    runs: int
    proposals: tuple[Proposal, ...]

    @property
    def most(self) -> float:
        return max((each.gain.high for each in self.proposals), default=1.0)


def outcomes(record: Record, changes: Iterable[Made]) -> list[LedgerEntry]:
    """What came of every prediction for a kernel as it was before."""
    number = {rule.name: rule.number for rule in RULES}
    found = []
    for run in measured(record):
        for change in changes:
            evidence = Evidence(record, run)
            tuned = [
                each
                for each in evidence.siblings
                if each.variant in change.after and each.passed and each.performance.hot is not None
            ]
            if not change.concerns(run) or not tuned:
                continue
            after = min(tuned, key=lambda each: each.performance.hot.timing.median_ns)  # type: ignore[union-attr]
            found += [
                beside(record, proposal, run, after, change.rules.get(number[proposal.rule], ""))
                for proposal in of_run(evidence)
            ]
    return found


def near(records: Iterable[Record]) -> Near:
    """Every prediction for kernels that are at NEAR of their ceiling or more."""
    those = [Evidence(record, run) for record in records for run in measured(record)]
    those = [evidence for evidence in those if evidence.R / evidence.t >= NEAR]
    return Near(len(those), tuple(proposal for evidence in those for proposal in of_run(evidence)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "records", nargs="*", type=Path, default=sorted((ROOT / "results" / "baselines").glob("*.json"))
    )
    parser.add_argument(
        "--code",
        action="store_true",
        help="for Records without compiled code or access patterns, take those of today's build (needs nvcc and g++)",
    )
    parser.add_argument("--write", action="store_true", help=f"put the outcomes into results/{NAME}")
    given = parser.parse_args()

    changes = made()
    unquoted = [f"{change.story}: {quote}" for change in changes for quote in change.missing()]
    for each in unquoted:
        print(f"NOT IN THE STORY  {each}")
    records = [read(path) for path in given.records]
    if given.code:
        from coded import with_accesses, with_code

        records = [with_accesses(with_code(record)) for record in records]
        print("compiled code and access patterns: today's build, where a Record has none")
    found = [outcome for record in records for outcome in outcomes(record, changes)]
    if given.write:
        add(ROOT / "results" / NAME, found)

    print(f"{'rule':<20} {'predicted':>9} {'change made':>12} {'inside':>8}  {'measured / predicted':>20}")
    ledger = Ledger(tuple(found))
    for rule in RULES:
        own = [outcome for outcome in found if outcome.rule == rule.name]
        if own:
            bias, named = ledger.standing(rule.name).bias, sum(bool(outcome.change) for outcome in own)
            print(f"{rule.name:<20} {len(own):>9} {named:>12} {sum(outcome.hit for outcome in own):>8}  {bias:>20.2f}")
    for outcome in found:
        if not outcome.hit:
            why = "outside" if outcome.change else "no such change was made"
            gain = (
                f"{outcome.predicted.low:.2f} to {outcome.predicted.high:.2f}, measured {outcome.measured.median:.2f}"
            )
            print(f"MISS ({why})  {outcome.rule}: {outcome.kernel} {outcome.workload}: {gain}")
    close = near(records)
    share, named = inside(found), all(outcome.change for outcome in found)
    print(f"{len(found)} predictions, each about a change that was made: {'yes' if named else 'no'}")
    print(
        f"inside the predicted interval: {'none' if share is None else f'{100 * share:.1f} %'} (goal "
        f"{100 * GOAL:.0f} %)"
    )
    told = f"{len(close.proposals)} proposals, at most {close.most:.2f}x (goal {MOST}x)"
    print(f"{close.runs} Runs at {100 * NEAR:.0f} % of the ceiling: {told}")
    return 0 if share is not None and share >= GOAL and named and close.most <= MOST and not unquoted else 1


if __name__ == "__main__":
    sys.exit(main())
