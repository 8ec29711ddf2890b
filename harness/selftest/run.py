"""Plants every fixed mutant into the candidate of every key on every workload of a suite, judges each, and counts.

population adds drawn mutants.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache, partial
from hashlib import sha256
from math import prod
from multiprocessing import get_context
from typing import Protocol

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import TritmarkError, UsageError
from tritmark.harness.interruption import end_pool, uninterrupted
from tritmark.harness.machine.cpu import BINDING, affinity
from tritmark.harness.nearest import nearest
from tritmark.harness.providers import Installed, load
from tritmark.harness.record import Status
from tritmark.harness.selftest.consequence import Consequence, of_outputs, of_runs
from tritmark.harness.selftest.mutants import generic, special
from tritmark.harness.selftest.population import Chunk, ChunkResult, DrawnMutants, chunks, judged
from tritmark.harness.selftest.site import MutantSite, Outputs, site
from tritmark.harness.selftest.stand_in import MutantPlan, variant
from tritmark.harness.spec import EquivalentMutants, KernelKey, Mutant, Op, Variant, Workload
from tritmark.harness.suite import SelectedWorkload
from tritmark.harness.validate import accuracy
from tritmark.harness.validate.accuracy import Judged
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.draw import Drawer
from tritmark.harness.validate.guards import bits
from tritmark.harness.worker.serve import settle

LARGEST = 1 << 20
"""Maximum bytes of all arrays of a workload; larger ones are left out to save time. Mutants that only such a size shows
are not planted."""
GOALS = {"full": 1.0}
"""The share that must be killed, by suite."""
GOAL = 0.98
"""The share that must be killed in other suites."""
THREADS = 1
QUIET = 4
"""One in this many processes is used if time decides the verdict."""


class MutantOutcome(StrEnum):
    """The result for one mutant on one workload, or in a whole suite."""

    KILLED = "killed"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    ADMITTED = "admitted"
    """The outputs differ by no more than the op's contract admits."""
    HARMLESS = "harmless"
    """In a whole suite: not a mutant according to the op's contract."""


Judge = Callable[..., Judged]


@dataclass(frozen=True, slots=True)
class PlantedMutant:
    """One mutant in one workload's candidate."""

    workload: str
    key: KernelKey
    mutant: str
    outcome: MutantOutcome


@dataclass(slots=True)
class MutantTally:
    """Numbers of outcomes."""

    counts: Counter[MutantOutcome] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """The killed share of killed and survived mutants; 1 if there are none."""
        killed, survived = self.counts[MutantOutcome.KILLED], self.counts[MutantOutcome.SURVIVED]
        return killed / (killed + survived) if killed + survived else 1.0


@dataclass(frozen=True, slots=True)
class MissedMutant:
    """A mutant that the suite does not kill, or not on every workload where it does harm."""

    key: KernelKey
    mutant: str
    outcome: MutantOutcome
    """EQUIVALENT, ADMITTED: no workload shows it. SURVIVED: a workload shows it, and it passes there."""
    where: str
    """The first workload where it survives."""


@dataclass(slots=True)
class Result:
    """The result of a suite."""

    suite: str
    goal: float
    planted: list[PlantedMutant] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Workloads that are too large."""
    alarms: list[str] = field(default_factory=list)
    """Workloads where the candidate without a mutant fails, with the reason."""
    harmless: dict[tuple[KernelKey, str], str] = field(default_factory=dict)
    """Mutants that are harmless by contract, with the reason."""
    drawn: DrawnMutants = field(default_factory=lambda: DrawnMutants(0))

    def workloads(self) -> Mapping[tuple[str, str], MutantTally]:
        """The tally of each op and workload."""
        found: dict[tuple[str, str], MutantTally] = {}
        for each in self.planted:
            found.setdefault((each.key.op, each.workload), MutantTally()).counts[each.outcome] += 1
        return found

    def mutants(self) -> Mapping[tuple[KernelKey, str], MutantOutcome]:
        """The outcome of each key's mutants in the whole suite: killed if one workload kills it."""
        found: dict[tuple[KernelKey, str], set[MutantOutcome]] = {}
        for each in self.planted:
            found.setdefault((each.key, each.mutant), set()).add(each.outcome)
        order = (MutantOutcome.KILLED, MutantOutcome.SURVIVED, MutantOutcome.ADMITTED, MutantOutcome.EQUIVALENT)
        reported = {
            which: next(outcome for outcome in order if outcome in outcomes) for which, outcomes in found.items()
        }
        quiet = {MutantOutcome.ADMITTED, MutantOutcome.EQUIVALENT}
        return {
            which: MutantOutcome.HARMLESS if which in self.harmless and it in quiet else it
            for which, it in reported.items()
        }

    def ops(self) -> Mapping[str, tuple[MutantTally, MutantTally]]:
        """For each op, the tally of its mutants on all workloads, and the tally in the whole suite. A mutant that no
        workload shows counts as survived in the suite."""
        found: dict[str, tuple[MutantTally, MutantTally]] = {}
        for each in self.planted:
            found.setdefault(each.key.op, (MutantTally(), MutantTally()))[0].counts[each.outcome] += 1
        for (key, _), outcome in self.mutants().items():
            caught = outcome if outcome in {MutantOutcome.KILLED, MutantOutcome.HARMLESS} else MutantOutcome.SURVIVED
            found[key.op][1].counts[caught] += 1
        return found

    def missed(self) -> list[MissedMutant]:
        """Mutants that are not killed, or survive on a workload, in the order of ops."""
        survived: dict[tuple[KernelKey, str], str] = {}
        for each in self.planted:
            if each.outcome is MutantOutcome.SURVIVED:
                survived.setdefault((each.key, each.mutant), each.workload)
        found = []
        for (key, mutant), outcome in self.mutants().items():
            where = survived.get((key, mutant), "")
            if where or outcome not in {MutantOutcome.KILLED, MutantOutcome.HARMLESS}:
                found.append(MissedMutant(key, mutant, MutantOutcome.SURVIVED if where else outcome, where))
        return found

    @property
    def share(self) -> float:
        """The smallest share of any op, on all workloads and in the whole suite."""
        return min((tally.share for tallies in self.ops().values() for tally in tallies), default=1.0)

    @property
    def passed(self) -> bool:
        return not self.alarms and self.share >= self.goal and self.drawn.passed


class SelftestObserver(Protocol):
    """Receives the progress of the work."""

    def planned(self, total: int) -> None:
        """The work has `total` parts."""

    def advance(self) -> None:
        """One part is complete."""


def execute(
    installed: Installed,
    suite: str,
    op: str = "*",
    *,
    processes: int = 1,
    judge: Judge = accuracy.judge,
    seed: int = 0,
    count: int | None = None,
    observer: SelftestObserver | None = None,
) -> Result:
    """Plant every fixed mutant on every workload of the suite, for ops that match the glob, and drawn mutants.

    `seed` draws mutants and their cases. `count` is the number of drawn mutants for each op; None: the suite's number.
    With more than one of `processes`, they share the work and use the harness's own judgement, not `judge`. Raises
    UsageError if no op matches.
    """
    selected = [item for item in installed.suite(suite).selected if fnmatchcase(item.workload.op, op)]
    if not selected:
        raise UsageError(f"suite {suite!r} has no workload of an op that matches {op!r}; {nearest(op, installed.ops)}")
    result = Result(suite, GOALS.get(suite, GOAL), drawn=DrawnMutants(seed))
    groups = _groups(installed, selected, result)
    # The costly groups first, so that processes end at about the same time.
    order = sorted(
        range(len(groups)), key=lambda at: -_nbytes(installed.ops[groups[at][0].op], groups[at][0], groups[at][1])
    )
    drawn = chunks(installed, suite, op, seed, count)
    if observer is not None:
        observer.planned(len(groups) + len(drawn))
    fixed: dict[int, Part] = {}
    population: dict[int, ChunkResult] = {}
    for nth, done in _done(installed, [*drawn, *(groups[at] for at in order)], processes, judge):
        if isinstance(done, ChunkResult):
            population[nth] = done
        else:
            fixed[order[nth - len(drawn)]] = done
        if observer is not None:
            observer.advance()
    for at in range(len(groups)):
        planted, alarms = fixed[at]
        result.planted += planted
        result.alarms += alarms
    for nth in range(len(drawn)):
        result.drawn.fates += population[nth].fates
        result.drawn.equivalent += population[nth].equivalent
        result.drawn.alarms += population[nth].alarms
    _excuse(installed, result)
    return result


def _done(
    installed: Installed, work: Sequence[Chunk | Group], processes: int, judge: Judge
) -> Iterator[tuple[int, ChunkResult | Part]]:  # fmt: skip
    """Yield the result of each part of the work as it completes. Timed parts come last, with most cores idle."""
    if processes == 1 or len(work) < 2:
        for nth, each in enumerate(work):
            yield nth, _one(installed, each, judge)
        return
    timed = [nth for nth, each in enumerate(work) if isinstance(each, Chunk) and each.timed]
    for chosen, count in (
        ([nth for nth in range(len(work)) if nth not in timed], processes),
        (timed, max(1, processes // QUIET)),
    ):
        if not chosen:
            continue
        finished = False
        with uninterrupted():
            pool = ProcessPoolExecutor(min(count, len(chosen)), get_context("spawn"), _begin, (affinity(),))
        try:
            with uninterrupted():
                waiting = {pool.submit(_part, work[nth]): nth for nth in chosen}
            for future in as_completed(waiting):
                yield waiting[future], future.result()
            finished = True
        finally:
            end_pool(pool, at_once=not finished)


def _begin(cores: frozenset[int]) -> None:
    """Prepare this new process to share the cores with others: bound threads of all processes would spin on the same
    cores."""
    settle(cores)
    os.environ["OMP_WAIT_POLICY"] = "passive"
    os.environ.pop(BINDING[0], None)
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def _one(installed: Installed, work: Chunk | Group, judge: Judge) -> ChunkResult | Part:
    # Mutants overflow on purpose, so NumPy's warnings are off.
    with np.errstate(all="ignore"):
        return judged(installed, work) if isinstance(work, Chunk) else _planted(installed, work, judge)


Group = tuple[Workload, tuple[KernelKey, ...], tuple[str, ...]]
"""Workloads with the same data: one of them, the keys, and the layouts of all."""
Part = tuple[list[PlantedMutant], list[str]]


DRAWN = 24
"""Workloads for fixed mutants that replace a suite's drawn cases. They are the same in every invocation."""

LEAST = DRAWN // 2
"""Minimum of these workloads for each key: if its kernels admit fewer, more are drawn for it."""


def _workloads(installed: Installed, item: SelectedWorkload) -> Iterator[SelectedWorkload]:
    """The workload, or drawn cases if it is a drawn one, with the nearest layout.

    All keys of an op with kernels for the CPU share these cases. A key gets cases of its own if its format or its
    kernels admit few of the shared ones: the judgement draws cases for each kernel, so a mutant that no shape of its
    key can show would be no evidence about the judgement.
    """
    if not item.workload.drawn:
        yield item
        return
    op = installed.ops[item.workload.op]
    keys = [key for key in installed.keys(op.name) if item.admits(key.format, key.dtype, key.device)]
    shared = _cases(installed, op, next((key for key in keys if key.device == "cpu"), None), DRAWN)
    for case in shared:
        yield SelectedWorkload(case, (), ())
    of_constraints: dict[tuple[object, ...], tuple[KernelKey, int, dict[str, None]]] = {}
    for key in keys:
        limits = _least_limited(installed, key).constraints
        few = sum(all(limit.refusal(case.axes) is None for limit in limits) for case in shared)
        least = LEAST if shared else DRAWN
        if few < least:
            mark = (key.format, limits) if shared else (key,)
            of_constraints.setdefault(mark, (key, least - few, {}))[2][key.dtype] = None
    for key, count, dtypes in of_constraints.values():
        for case in _cases(installed, op, key, count)[:count]:
            yield SelectedWorkload(case, (key.format,), tuple(dtypes))


def _cases(installed: Installed, op: Op, key: KernelKey | None, count: int) -> list[Workload]:
    if key is None:
        return []
    drawer = Drawer(op, _least_limited(installed, key), cores=THREADS, threaded=True, seed=0)
    return [
        Workload(
            op=op.name,
            axes=case.axes,
            family=case.family,
            layout="aligned" if case.layout == "aligned" else "unaligned",
        )
        for case in drawer.draw(count)
    ]


def _least_limited(installed: Installed, key: KernelKey) -> Variant:
    fitting = [variant for variant in installed.registry.without_peers if variant.key == key]
    return min(fitting, key=lambda variant: len(variant.constraints))


def _of_families(installed: Installed, selected: Iterable[SelectedWorkload]) -> Iterator[SelectedWorkload]:
    """The selected workloads, with drawn cases as workloads. For ops with drawn cases, adds a case for each family of
    inputs that a key lacks."""
    met: dict[KernelKey, set[str]] = {}
    ops: set[str] = set()
    for one in selected:
        if one.workload.drawn:
            ops.add(one.workload.op)
        for item in _workloads(installed, one):
            yield item
            for key in _keys(installed, item):
                met.setdefault(key, set()).add(item.workload.family)
    drawn = {
        (key.op, key.format, key.dtype): key
        for key in (each.key for each in reversed(installed.registry.without_peers))
    }
    for key, families in ((key, met[key]) for key in met if key.op in ops):
        op = installed.ops[key.op]
        lacking = set(op.input_families) - families
        # The number 0 gives one case of each class.
        for case in _cases(installed, op, drawn[key.op, key.format, key.dtype], 0) if lacking else ():
            if case.family in lacking:
                lacking.discard(case.family)
                yield SelectedWorkload(case, (key.format,), (key.dtype,))


def _groups(installed: Installed, selected: Iterable[SelectedWorkload], result: Result) -> list[Group]:
    groups: dict[tuple[object, ...], tuple[Workload, tuple[KernelKey, ...], list[str]]] = {}
    for item in _of_families(installed, selected):
        workload, op = item.workload, installed.ops[item.workload.op]
        keys = _keys(installed, item)
        if not keys or workload.drawn:
            continue
        nbytes = _nbytes(op, workload, keys)
        if nbytes > LARGEST:
            result.left_out.append(f"{workload.id}: {nbytes >> 20} MiB")
            continue
        group = groups.setdefault((op.name, tuple(workload.axes.items()), workload.family, keys), (workload, keys, []))
        if workload.layout not in group[2]:
            group[2].append(workload.layout)
    return [(workload, keys, tuple(layouts)) for workload, keys, layouts in groups.values()]


def _keys(installed: Installed, item: SelectedWorkload) -> tuple[KernelKey, ...]:
    """The keys of a workload, with the CPU as their device: those of the CPU, and those of other devices with other
    outputs."""
    op, axes = installed.ops[item.workload.op], item.workload.axes
    fitting = [
        each.key
        for each in installed.registry.without_peers
        if each.key.op == op.name
        and item.admits(each.key.format, each.key.dtype, each.key.device)
        and all(limit.refusal(axes) is None for limit in each.constraints)
    ]
    own = dict.fromkeys(key for key in fitting if key.device == "cpu")
    outputs = [op.outputs_like(axes, key) for key in own]
    others = (
        replace(key, device="cpu")
        for key in fitting
        if key.device != "cpu" and op.outputs_like(axes, key) not in outputs
    )
    return tuple(dict.fromkeys((*own, *others)))


def _nbytes(op: Op, workload: Workload, keys: Sequence[KernelKey]) -> int:
    """Bytes of logical inputs and of the outputs of the largest key."""
    axes = workload.axes
    read = sum(
        prod(axes.get(axis, 1) for axis in tensor.axes) * named_dtype(tensor.dtype).itemsize for tensor in op.inputs
    )
    like = [op.outputs_like(axes, key).values() for key in keys]
    return read + max(sum(prod(shape) * named_dtype(dtype).itemsize for shape, dtype in outputs) for outputs in like)


@cache
def _loaded() -> Installed:
    return load()


def _part(work: Chunk | Group) -> ChunkResult | Part:
    """One part of the work, in a process of the pool."""
    return _one(_loaded(), work, accuracy.judge)


def _planted(installed: Installed, group: Group, judge: Judge) -> Part:
    """All mutants on the workloads of a group."""
    workload, keys, layouts = group
    op = installed.ops[workload.op]
    material = Material(op, workload, 0)
    planted: list[PlantedMutant] = []
    alarms: list[str] = []
    for key in keys:
        there = site(material, key)
        plans = [*generic(op, key, workload.axes)]
        plans += [
            special(each)
            for each in _mutants(installed, Mutant)
            if each.op == op.name and each.only(key) and not each.drawn
        ]
        # Equal names would count as one mutant.
        assert len({plan.name for plan in plans}) == len(plans), [plan.name for plan in plans]
        for layout in layouts:
            name = Workload(op=op.name, axes=workload.axes, family=workload.family, layout=layout).id
            bench = _MutantBench(there, layout, judge)
            why = bench.judged(MutantPlan("none"), there.right.__getitem__)
            if why:
                alarms.append(f"{name} of {key}: {why}")
                continue
            planted += [PlantedMutant(name, key, plan.name, bench.outcome(plan)) for plan in plans]
    return planted, alarms


def _mutants(installed: Installed, kind: type) -> Iterator:  # type: ignore[type-arg]
    return (each for provider in installed.providers.values() for each in provider.mutants() if isinstance(each, kind))


class SelftestError(TritmarkError):
    """A candidate with a mutant raised an unexpected error."""


class _MutantBench:
    """Plants mutants into the candidate of one key on one workload."""

    def __init__(self, there: MutantSite, layout: str, judge: Judge) -> None:
        self._site = there
        self._layout = layout
        self._judge = judge
        self._known: dict[bytes, MutantOutcome] = {}
        """Outcomes by the digest of the outputs: equal outputs get the same verdict."""

    def outcome(self, plan: MutantPlan) -> MutantOutcome:
        if plan.outputs is None:
            why = self.judged(plan, None)
            if why:
                return MutantOutcome.KILLED
            done = of_runs(self._site, partial(variant, self._site, plan, None), self._layout, THREADS)
            return _UNSEEN[done]
        outputs = tuple(plan.outputs(self._site, nth) for nth in range(len(self._site.data)))
        done = of_outputs(self._site, outputs.__getitem__)
        if done is Consequence.NONE:
            return MutantOutcome.EQUIVALENT
        digest = sha256()
        for each in outputs:
            for name in self._site.right[0]:
                digest.update(bits(each[name]).tobytes())
        at = digest.digest()
        if at not in self._known:
            self._known[at] = MutantOutcome.KILLED if self.judged(plan, outputs.__getitem__) else _UNSEEN[done]
        return self._known[at]

    def judged(self, plan: MutantPlan, made: Callable[[int], Outputs] | None) -> str:
        """Why the judgement fails the candidate with that mutant; "" if it passes."""
        there = self._site
        # The judgement begins with the first data, and most mutants fail there: try it alone first.
        for cases in (replace(there.cases, second=None, in_place=False), there.cases):
            verdict = self._judge(
                there.op, variant(there, plan, made), cases, there.axes, layout=self._layout, threads=THREADS, seed=0
            ).accuracy
            if verdict.status is Status.ERROR:
                raise SelftestError(f"{there.key}: {plan.name}: {verdict.reason}")
            if verdict.status is Status.FAIL:
                return verdict.reason
        return ""


_UNSEEN = {
    Consequence.NONE: MutantOutcome.EQUIVALENT,
    Consequence.ADMITTED: MutantOutcome.ADMITTED,
    Consequence.HARM: MutantOutcome.SURVIVED,
}
"""The outcome of a mutant that the judgement passes, by its consequence."""


def _excuse(installed: Installed, result: Result) -> None:
    """Note the mutants that are harmless by contract according to the providers."""
    rules: list[EquivalentMutants] = list(_mutants(installed, EquivalentMutants))
    for key, mutant in dict.fromkeys((each.key, each.mutant) for each in result.planted):
        for rule in rules:
            if rule.op == key.op and fnmatchcase(mutant, rule.mutant) and rule.only(key):
                result.harmless[key, mutant] = rule.reason
                break
