"""The plan of `tritmark check`: a user's kernel and the best built-in one, on the same workloads, in the requested
dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tritmark.harness.errors import AmbiguousKernelError, NoCompatibleKernelError, UsageError
from tritmark.harness.providers import Installed
from tritmark.harness.record import DIMENSIONS, NotJudged, NotJudgedKind
from tritmark.harness.spec import KernelKey, Variant
from tritmark.harness.suite import SelectedWorkload, Suite

SUITE = "check"
"""Name of the suite in such a Record."""
CLOSER = 5
"""Factor on the suite's number of drawn cases."""

SHAPES = 3
"""Workloads of a kernel that are timed if its accuracy is judged on drawn cases: the first, the middle and the last
one of the suite."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The candidate's variants, the variants that they are compared with, and the workloads."""

    mine: tuple[Variant, ...]
    rivals: tuple[Variant, ...]
    suite: Suite
    not_judged: tuple[NotJudged, ...]
    """Workloads of the suite that are left out, with the reason."""
    baselines: tuple[Variant, ...] = ()
    """The plainest built-in variants, at whose speed a score is 0; empty without a score."""

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all variants that run."""
        return frozenset(variant.id for variant in (*self.mine, *self.others))

    @property
    def others(self) -> tuple[Variant, ...]:
        """The built-in variants that run, each once."""
        return tuple(dict.fromkeys((*self.rivals, *self.baselines)))


def planned(
    installed: Installed,
    mine: Sequence[Variant],
    suite: Suite,
    op: str = "*",
    device: str = "*",
    dimensions: frozenset[str] = frozenset(DIMENSIONS),
    *,
    scored: bool = False,
) -> Plan:
    """The plan for these dimensions. Rivals are only timed; unmeasured workloads are only judged for accuracy. With
    `scored`, the plainest variant of each rival's key is timed too.

    Raises UsageError if the candidate has no variant for the op and device, or the suite no workload for its ops.
    """
    from fnmatch import fnmatchcase

    chosen = tuple(each for each in mine if fnmatchcase(each.key.op, op) and fnmatchcase(each.key.device, device))
    if not chosen:
        there = ", ".join(f"{each.key.op} on {each.key.device}" for each in mine)
        raise UsageError(f"--op {op!r} and --device {device!r} match no kernel of the file; legal: {there}")
    ops = {variant.key.op for variant in chosen}
    selected = [each for each in suite.selected if each.workload.op in ops]
    if not selected:
        raise UsageError(
            f"suite {suite.name} has no workloads of {', '.join(sorted(ops))}; legal: a suite with some, such as quick"
        )
    simulated = all(installed.registry.devices[each.key.device].simulated() for each in chosen)
    judged = [each for each in selected if not (simulated and each.workload.measure)] or selected
    if "accuracy" not in dimensions:
        judged = [each for each in judged if each.workload.measure] or judged
    # A single kernel gets more drawn cases than in a run of all kernels, and fewer timed shapes.
    few = _few(chosen, judged) if any(each.workload.drawn for each in judged) else judged
    closer = [each.with_workload(replace(each.workload, drawn=each.workload.drawn * CLOSER)) for each in few]
    narrowed = Suite(SUITE, suite.title, suite.digest, tuple(closer))
    ours = {variant.id for variant in mine}
    keys = dict.fromkeys(variant.key for variant in chosen)
    timed = keys if "performance" in dimensions else ()
    rivals = dict.fromkeys(rival for key in timed for rival in _rivals(installed, key, narrowed, ours))
    left_out = [
        *_left_out(selected, judged, "they are for measuring, and a simulator has no speed (simulated)"),
        *_left_out(judged, few, f"{SHAPES} shapes of a kernel are timed: the first, the middle and the last one"),
    ]
    plain = dict.fromkeys(_plainest(installed, each, narrowed) for each in rivals) if scored else ()
    return Plan(chosen, tuple(rivals), narrowed, tuple(left_out), tuple(plain))


def _plainest(installed: Installed, rival: Variant, suite: Suite) -> Variant:
    """The variant of the rival's key with the lowest tier and rank that runs here, at every shape that is timed."""
    features = installed.registry.devices[rival.key.device].features()
    timed = [
        each.workload.axes for each in suite.selected if each.workload.op == rival.key.op and each.workload.measure
    ]
    of_key = [
        each
        for each in installed.registry.variants
        if each.key == rival.key
        and not each.tier.named_only
        and each.features <= features
        and not any(limit.refusal(axes) for limit in each.constraints for axes in timed)
    ]
    return min(of_key, key=lambda each: (each.tier, each.rank), default=rival)


def _left_out(before: Sequence[SelectedWorkload], after: Sequence[SelectedWorkload], given: str) -> Iterator[NotJudged]:
    """A note on the measured workloads that are in `before` and not in `after`, if any."""
    kept = {each.workload.id for each in after}
    gone = dict.fromkeys(each.workload.id for each in before if each.workload.measure and each.workload.id not in kept)
    if gone:
        yield NotJudged(kind=NotJudgedKind.WORKLOADS, about=tuple(gone), told=given)


def _few(chosen: Sequence[Variant], selected: Sequence[SelectedWorkload]) -> list[SelectedWorkload]:
    """The workloads, with at most SHAPES that are timed for each variant."""
    kept: set[str] = set()
    for variant in chosen:
        key = variant.key
        mine = [
            each.workload
            for each in selected
            if each.workload.op == key.op and each.admits(key.format, key.dtype, key.device)
        ]
        timed = [
            workload
            for workload in mine
            if workload.measure and not any(c.refusal(workload.axes) for c in variant.constraints)
        ]
        if len(timed) > SHAPES:
            timed = [timed[round(place * (len(timed) - 1) / (SHAPES - 1))] for place in range(SHAPES)]
        kept |= {workload.id for workload in timed}
    return [each for each in selected if not each.workload.measure or each.workload.id in kept]


def _rivals(installed: Installed, key: KernelKey, suite: Suite, ours: set[str]) -> Iterator[Variant]:
    """The variant that is the best for most workloads: of the same key, or otherwise of the same op, device and
    dtype."""
    others = [each for each in installed.keys(key.op) if (each.device, each.dtype) == (key.device, key.dtype)]
    for each in (key, *(other for other in others if other != key)):
        votes: Counter[Variant] = Counter()
        for item in suite.selected:
            if item.workload.op != key.op or item.workload.drawn:
                continue
            try:
                best = installed.registry.select_best(each, item.workload.axes)
            except (NoCompatibleKernelError, AmbiguousKernelError):
                continue
            if best.id not in ours:
                votes[best] += 1
        if votes:
            yield votes.most_common(1)[0][0]
            return
