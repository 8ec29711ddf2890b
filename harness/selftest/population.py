"""Draws mutants for every op, judges each, and reports the share that is killed, with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from tritmark.harness.machine.cpu import physical_cores
from tritmark.harness.selftest import apart, apart_oracle, drawn_mutants
from tritmark.harness.selftest.apart import LaunchMutant
from tritmark.harness.selftest.domain import Domain, NothingAdmittedError, reach
from tritmark.harness.selftest.oracle import Oracle
from tritmark.harness.selftest.right import keys, right
from tritmark.harness.selftest.struck import variant
from tritmark.harness.spec import KernelKey, Mutant, Workload

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed

GOAL = 0.98
"""The share of drawn mutants that must be killed."""
CONFIDENCE = 0.95
COUNTS = {"full": 500}
"""Number of mutants for each op, by suite."""
COUNT = 24
"""Number of mutants for each op in other suites."""
APART = {"full": 12}
"""Number of mutants of each kind that outputs do not show (see apart), for each op with a kernel on this machine, by
suite."""
FEW_APART = 2
"""The same number in other suites, for one kind, which the seed and the op select: each takes about a second."""
CORNERS = {"full": "quick"}
"""By suite, the suite whose workloads are judged beside the drawn cases: `tritmark check` uses those of quick, and full
has hundreds."""
CASES = 120
"""Number of drawn cases if the suite has none."""
CHUNK = 50
"""Mutants that are judged on the same cases, so that data and expected outputs are made once. Each chunk draws its own
cases, so a gap in one draw affects few mutants."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Mutants of one key, by number, that are judged together."""

    key: KernelKey
    numbers: tuple[int, ...]
    seed: int
    cases: int
    corners: tuple[Workload, ...]
    reach: tuple[tuple[str, int], ...]
    apart: str = ""
    """The kind of mutants that outputs do not show; "" for other mutants."""

    @property
    def timed(self) -> bool:
        """Whether time decides the verdict: such chunks run with most cores idle."""
        return self.apart == "skipped"


@dataclass(frozen=True, slots=True)
class MutantFate:
    """The result for one drawn mutant."""

    key: KernelKey
    number: int
    kind: str
    text: str
    reason: str
    """Why the judgement fails the kernel; "" if it passes: the mutant survives."""
    struck: int | None
    """Number of times that the mutant took effect while it was judged; 0: no judged case fires it. None if not
    counted."""

    @property
    def killed(self) -> bool:
        return self.reason != ""


@dataclass(slots=True)
class DrawnMutants:
    """All drawn mutants of an invocation."""

    seed: int
    fates: list[MutantFate] = field(default_factory=list)
    equivalent: int = 0
    """Draws that do no harm; they are not in the share."""
    alarms: list[str] = field(default_factory=list)
    """Kernels without a mutant that fail, with the reason."""

    def by(self, what: str) -> Mapping[str, tuple[int, int]]:
        """Numbers of killed and of all mutants, by "op" or "kind"."""
        found: dict[str, tuple[int, int]] = {}
        for each in self.fates:
            name = each.key.op if what == "op" else each.kind
            killed, count = found.get(name, (0, 0))
            found[name] = killed + each.killed, count + 1
        return found

    @property
    def killed(self) -> int:
        return sum(each.killed for each in self.fates)

    @property
    def share(self) -> float:
        """The killed share of all mutants; 1 if there are none."""
        return self.killed / len(self.fates) if self.fates else 1.0

    @property
    def survivors(self) -> list[MutantFate]:
        return [each for each in self.fates if not each.killed]

    @property
    def passed(self) -> bool:
        """Whether the goal may be reached: the interval's upper end is not below it, and there is no alarm."""
        return not self.alarms and interval(self.killed, len(self.fates))[1] >= GOAL


def interval(killed: int, count: int) -> tuple[float, float]:
    """The exact interval of the share (Clopper and Pearson 1934) at CONFIDENCE; (0, 1) for no mutants."""
    from scipy.stats import binomtest

    if not count:
        return 0.0, 1.0
    found = binomtest(killed, count).proportion_ci(CONFIDENCE, method="exact")
    return float(found.low), float(found.high)


def chunks(installed: Installed, suite: str, op: str, seed: int, count: int | None = None) -> list[Chunk]:
    """The work: `count` mutants for each op of the suite that matches the glob.

    Mutants are dealt to the op's keys in rotation. A small number goes to one drawn key, because a key's cases cost
    more than further mutants judged on them.
    """
    wanted = COUNTS.get(suite, COUNT) if count is None else count
    by_op: dict[str, list[Workload]] = {}
    for item in installed.suite(suite).selected:
        if fnmatchcase(item.workload.op, op):
            by_op.setdefault(item.workload.op, []).append(item.workload)
    beside = [item.workload for item in installed.suite(CORNERS.get(suite, suite)).selected]
    found = []
    for name, workloads in by_op.items():
        every = keys(installed, name)
        cases = max((workload.drawn for workload in workloads), default=0) or CASES
        sizes = tuple(reach([workload.axes for workload in workloads]).items())
        if wanted <= CHUNK:
            every = [every[int(np.random.default_rng([seed, len(name)]).integers(len(every)))]]
        for nth, key in enumerate(every):
            numbers = range(nth, wanted, len(every))
            for start in range(0, len(numbers), CHUNK):
                corners = _corners(installed, key, [workload for workload in beside if workload.op == name])
                found.append(Chunk(key, tuple(numbers[start : start + CHUNK]), seed, cases, corners, sizes))
        if wanted:
            found += _apart(installed, suite, every[0], Chunk(every[0], (), seed, cases, (), sizes))
    return found


def _apart(installed: Installed, suite: str, key: KernelKey, like: Chunk) -> list[Chunk]:
    """Chunks of mutants that outputs do not show, for an op with a kernel on this machine. The reference is no
    substitute: its memory and time are not those of a kernel."""
    if all(refusal is not None for _, refusal in installed.registry.candidates(key)):
        return []
    if suite in APART:
        return [replace(like, apart=kind, numbers=tuple(range(APART[suite]))) for kind in apart.KINDS]
    return [
        replace(like, apart=apart.KINDS[(like.seed + len(key.op)) % len(apart.KINDS)], numbers=tuple(range(FEW_APART)))
    ]


_CORNER = 1 << 18
"""Maximum input elements of a suite's workload that is judged beside the drawn cases."""


def _corners(installed: Installed, key: KernelKey, workloads: Sequence[Workload]) -> tuple[Workload, ...]:
    op = installed.ops[key.op]
    limits = right(installed, key).constraints
    return tuple(
        each
        for each in workloads
        if not each.drawn
        and sum(prod(each.axes.get(axis, 1) for axis in tensor.axes) for tensor in op.inputs) <= _CORNER
        and all(limit.refusal(each.axes) is None for limit in limits)
    )


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """The results of a chunk."""

    fates: tuple[MutantFate, ...]
    equivalent: int
    alarms: tuple[str, ...]


def judged(installed: Installed, chunk: Chunk) -> ChunkResult:
    """Draw the mutants of a chunk and judge them. A kernel without a mutant is judged first."""
    if chunk.apart:
        return _judged_apart(installed, chunk)
    there = right(installed, chunk.key)
    seed = int(
        np.random.SeedSequence([chunk.seed, drawn_mutants.mark(chunk.key), chunk.numbers[0]]).generate_state(1)[0]
    )
    oracle = Oracle(there, chunk.cases, chunk.corners, seed, physical_cores())
    none, counted = variant(there, lambda at: False, None, False, 0)
    (honest,) = oracle.judged([none])
    if honest:
        return ChunkResult((), 0, (f"{chunk.key}: {honest}",))
    mutants = [
        each
        for provider in installed.providers.values()
        for each in provider.mutants()
        if isinstance(each, Mutant) and each.op == chunk.key.op and each.only(chunk.key)
    ]
    domain = Domain(there, dict(chunk.reach), physical_cores())
    drawn = []
    for number in chunk.numbers:
        try:
            drawn.append(drawn_mutants.draw(domain, mutants, counted.calls, chunk.seed, number))
        except NothingAdmittedError:
            continue
    made = [
        variant(there, each.trigger.fires, each.effect, each.trigger.reports, [chunk.seed, each.number])
        for each in drawn
    ]
    found = oracle.judged([candidate for candidate, _ in made])
    fates = [
        MutantFate(chunk.key, mutant.number, mutant.kind, mutant.text, reason, kept.struck)
        for mutant, reason, (_, kept) in zip(drawn, found, made, strict=True)
    ]
    return ChunkResult(tuple(fates), sum(each.equivalent for each in drawn), ())


def _judged_apart(installed: Installed, chunk: Chunk) -> ChunkResult:
    sizes = dict(chunk.reach)
    honest = apart_oracle.judge(
        installed, LaunchMutant(chunk.key, chunk.apart, apart.HONEST, chunk.seed), sizes, chunk.seed
    )
    if honest:
        return ChunkResult((), 0, (f"{chunk.key}: {chunk.apart}: {honest}",))
    mutants = [LaunchMutant(chunk.key, chunk.apart, number, chunk.seed) for number in chunk.numbers]
    reasons = [apart_oracle.judge(installed, mutant, sizes, chunk.seed + 1 + mutant.number) for mutant in mutants]
    fates = [
        MutantFate(chunk.key, mutant.number, mutant.kind, mutant.text, why, None)
        for mutant, why in zip(mutants, reasons, strict=True)
    ]
    return ChunkResult(tuple(fates), 0, ())
