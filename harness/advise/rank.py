"""The order of proposals: what should save most time of the measured workloads first, by rules that kept their
promises before others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import fsum
from statistics import median

from tritmark.harness.advise.evidence import Evidence, RunIndex
from tritmark.harness.record import HOST, Gain, Proposal, Record, Run

SHORT = 1.0
"""Share of the call's own cost: a kernel that takes less gains its caller next to nothing."""
TRUSTED = 0.5
"""Weight of a rule from which it goes before rules that were never tried: about a third of its promises kept."""


@dataclass(frozen=True, slots=True)
class RankedProposal:
    """One edit: a rule's advice for one kernel, on every workload where the rule gives it."""

    proposal: Proposal
    """For the workload on which it should save most."""
    others: tuple[Proposal, ...]
    """For the kernel's other workloads, the largest saving first."""
    saved_ns: float
    """Time that it should save, nanoseconds for one hot call of each of these workloads; see `saving`."""
    of_ns: float
    """What these calls take now."""
    tried: bool
    """Whether a prediction of the rule was checked before."""
    trusted: bool
    """Whether its weight is TRUSTED or more."""
    short: bool
    """The kernel takes less time than SHORT of what its call costs."""
    outrun: bool
    """Another variant is faster on every one of these workloads."""

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """All of them."""
        return self.proposal, *self.others


def call_ns(record: Record) -> float:
    """What a call through Python adds on the host: the median of the Record's Runs, 0 where none was timed."""
    found = [
        run.performance.call_overhead_ns
        for run in record.runs
        if run.device == HOST and run.performance.call_overhead_ns is not None
    ]
    return max(0.0, median(found)) if found else 0.0


def saving(ns: float, gain: Gain, weight: float = 1.0) -> float:
    """What of a time the gain should save: the mean of what its two ends would, times the rule's weight."""
    return weight * ns * (1 - (1 / gain.low + 1 / gain.high) / 2)


def rank(
    record: Record, proposals: Iterable[Proposal], weights: Mapping[str, float] | None = None
) -> tuple[RankedProposal, ...]:
    """The proposals of `record`, those of one rule for one kernel as one.

    The largest saving comes first; rules that were never tried, or missed most promises, follow those that kept them,
    kernels that a sibling outruns follow both, and kernels that are short beside their call come last. `weights` has
    the rules that were tried, and how much of a predicted saving counts; see `Ledger.weights`.
    """
    known = weights or {}
    around, cost = RunIndex(record), call_ns(record)
    runs = {run.id: run for run in record.runs if run.performance.hot is not None}
    found: dict[tuple[str, str], list[Proposal]] = {}
    for each in proposals:
        found.setdefault((each.rule, each.kernel), []).append(each)
    ranked = [_ranked(record, same, runs, known, around, cost) for same in found.values()]
    return tuple(sorted(ranked, key=_key))


def _key(each: RankedProposal) -> tuple[bool, bool, bool, float]:
    return each.short, each.outrun, not each.trusted, -each.saved_ns


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
        if run is None:  # of a Record that was edited: nothing is known of the kernel
            judged.append((each, 0.0, 0.0, False, False))
            continue
        evidence = Evidence(record, run, around)
        # A device's launch is among its ceilings: what is shorter than that is promised nothing.
        short = not evidence.on_device and evidence.t < SHORT * cost
        judged.append((each, evidence.t, saving(evidence.t, each.gain, weight), short, not evidence.fastest))
    # A workload on which another variant is faster anyway, or the call takes longer than its kernel, has nothing to
    # save as long as there are others.
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
