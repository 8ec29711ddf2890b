"""The order of proposals: by expected saving of time on the measured workloads, rules with correct predictions
first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from statistics import median

from tritmark.harness.advise.evidence import Evidence, RunIndex
from tritmark.harness.candidate.manifest import variant_name
from tritmark.harness.record import HOST, Gain, Proposal, Record, Run

SHORT = 1.0
"""Share of the call overhead below which a kernel is short: the caller gains almost nothing from a faster one."""
TRUSTED = 0.5
"""Weight from which a rule precedes untried rules: about a third of its predictions were correct."""


@dataclass(frozen=True, slots=True)
class RankedProposal:
    """One edit: the proposals of a rule for one kernel, over all its workloads."""

    proposal: Proposal
    """The proposal for the workload with the largest saving."""
    others: tuple[Proposal, ...]
    """The proposals for the kernel's other workloads, the largest saving first."""
    saved_ns: float
    """Expected saving in nanoseconds, for one hot call of each of these workloads; see `saving`."""
    of_ns: float
    """Current time of these calls."""
    tried: bool
    """A prediction of the rule was checked before."""
    trusted: bool
    """The weight of the rule is TRUSTED or more."""
    short: bool
    """The kernel takes less than SHORT of the call overhead."""
    outrun: bool
    """Another variant is faster on each of these workloads."""
    beside: bool = False
    """In a Record of `tritmark check`: the kernel is the built-in one beside the user's."""

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """All proposals, for all workloads."""
        return self.proposal, *self.others


def checked(record: Record) -> frozenset[str]:
    """Ids of the kernels of the user's file in a Record of `tritmark check`; empty for other Records."""
    words = record.environment.command
    if words[1:2] != ("check",):
        return frozenset()
    of_file = tuple(variant_name(Path(word), "") for word in words[2:])
    return frozenset(run.kernel for run in record.runs if run.variant.startswith(of_file))


def call_ns(record: Record) -> float:
    """Overhead of a call through Python on the host: the median over the Record's Runs; 0 if none was timed."""
    found = [
        run.performance.call_overhead_ns
        for run in record.runs
        if run.device == HOST and run.performance.call_overhead_ns is not None
    ]
    return max(0.0, median(found)) if found else 0.0


def saving(ns: float, gain: Gain, weight: float = 1.0) -> float:
    """Expected saving of a time: the mean of the savings at both ends of the gain, times the rule's weight."""
    return weight * ns * (1 - (1 / gain.low + 1 / gain.high) / 2)


def rank(
    record: Record, proposals: Iterable[Proposal], weights: Mapping[str, float] | None = None
) -> tuple[RankedProposal, ...]:
    """The proposals of `record`, sorted, with the proposals of one rule for one kernel combined.

    In a Record of `tritmark check`, the user's kernels come first. The largest saving comes first. Untried rules and
    rules with mostly incorrect predictions follow trusted rules. Then come kernels that a sibling outruns, then kernels
    that are short relative to the call overhead. `weights` has the factor on the predicted saving of each tried rule;
    see `Ledger.weights`.
    """
    known = weights or {}
    around, cost = RunIndex(record), call_ns(record)
    runs = {run.id: run for run in record.runs if run.performance.hot is not None}
    found: dict[tuple[str, str], list[Proposal]] = {}
    for each in proposals:
        found.setdefault((each.rule, each.kernel), []).append(each)
    ranked = [_ranked(record, same, runs, known, around, cost) for same in found.values()]
    mine = checked(record)
    if mine:
        ranked = [replace(each, beside=each.proposal.kernel not in mine) for each in ranked]
    return tuple(sorted(ranked, key=_key))


def _key(each: RankedProposal) -> tuple[bool, bool, bool, bool, float]:
    return each.beside, each.short, each.outrun, not each.trusted, -each.saved_ns


def _ranked(
    record: Record,
    same: list[Proposal],
    runs: Mapping[str, Run],
    weights: Mapping[str, float],
    around: RunIndex,
    cost: float,
) -> RankedProposal:
    weight = weights.get(same[0].rule, 1.0)
    judged = []
    for each in same:
        run = runs.get(each.run)
        if run is None:  # a Record that was edited has no facts of this kernel
            judged.append((each, 0.0, 0.0, False, False))
            continue
        evidence = Evidence(record, run, around)
        # A launch is a ceiling of a device, so its kernels are never short.
        short = not evidence.on_device and evidence.t < SHORT * cost
        judged.append((each, evidence.t, saving(evidence.t, each.gain, weight), short, not evidence.fastest))
    # Workloads with a faster variant, or with a kernel shorter than its call, count only if there are no others.
    aside = [one for one in judged if one[3] or one[4]]
    counting = [one for one in judged if not (one[3] or one[4])] or aside
    rest = aside if counting is not aside else []
    ordered = sorted(counting, key=lambda one: -one[2]) + sorted(rest, key=lambda one: -one[2])
    return RankedProposal(
        proposal=ordered[0][0],
        others=tuple(one[0] for one in ordered[1:]),
        saved_ns=fsum(one[2] for one in counting),
        of_ns=fsum(one[1] for one in counting),
        tried=same[0].rule in weights,
        trusted=weights.get(same[0].rule, 0.0) >= TRUSTED,
        short=all(one[3] for one in counting),
        outrun=all(one[3] or one[4] for one in counting) and any(one[4] for one in counting),
    )
