"""The smallest input on which a kernel fails: first small shapes of every family, then the case that failed with each
axis made smaller (delta debugging: Zeller, Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE
Transactions on Software Engineering 28, 2002). An input counts only if the kernel fails on it by itself, in one case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, prod
from time import monotonic
from typing import Any

import numpy as np

from tritmark.harness.check.facts import FirstDifference
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.record import Accuracy
from tritmark.harness.spec import Op, Variant, Workload
from tritmark.harness.validate.accuracy import judge, misfit
from tritmark.harness.validate.cases import Case, Cases, Material, admitted
from tritmark.harness.validate.compare import BrokenReferenceError, expectations
from tritmark.harness.validate.guard_names import Guard
from tritmark.harness.validate.trial import inputs_there
from tritmark.harness.worker import Workers

BUDGET_S = 10.0
"""Seconds for the search from its first judgement on, which starts a process. The smallest input so far is taken."""

_HARMLESS = frozenset({Guard.VALUES, Guard.POISON})
"""Faults that leave nothing behind in the process."""

_SMALL = (1, 2, 3, 5, 17, 64, 65, 128, 256)
"""Sizes of every axis that are tried first, together."""
_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Multiples to which a size is rounded if constraints or the format do not admit it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPoint:
    """What fixes the inputs of a case."""

    axes: Mapping[str, int]
    family: str
    layout: str = "aligned"
    threads: int = 1
    seed: int = 0
    salts: Mapping[str, str] | None = None
    """Kinds of whole inputs; see validate.salts."""

    @property
    def size(self) -> int:
        """The product of all axes."""
        return prod(self.axes.values())


@dataclass(frozen=True, slots=True)
class FoundFailure:
    """An input on which the kernel fails, and its verdict there."""

    point: DataPoint
    case: Case
    accuracy: Accuracy

    @property
    def nbytes(self) -> int:
        """Bytes of the inputs."""
        return sum(np.asarray(value).nbytes for value in self.case.logical.values())

    def difference(self, op: Op) -> FirstDifference | None:
        """The first incorrect element with its inputs; None if the kernel failed in another way."""
        found = self.accuracy.first
        if found is None:
            return None
        about: dict[str, Any] = found.model_dump()
        return FirstDifference(workload=str(shape(self.point)), inputs=inputs_there(op, self.case, found), **about)


def shape(point: DataPoint) -> str:
    """n=65 (ties, aligned): the axes, the family and the layout."""
    axes = ", ".join(f"{name}={size}" for name, size in point.axes.items())
    return f"{axes} ({point.family}, {point.layout})"


class FailureSearch:
    """Judges one variant on inputs of many sizes, in its own process."""

    def __init__(self, workers: Workers, variant: Variant, budget_s: float = BUDGET_S) -> None:
        self._workers, self._variant = workers, variant
        self._op = workers.installed.ops[variant.key.op]
        self._budget_s = budget_s
        self._end = inf
        self._known: dict[tuple[object, ...], FoundFailure | None] = {}

    def smallest(self, starts: Sequence[DataPoint]) -> FoundFailure | None:
        """The smallest failing input; None if none fails by itself. `starts` are points like those that failed."""
        failed = list(dict.fromkeys(each.family for each in starts))
        others = [each for each in self._op.input_families if each not in failed]
        found = (
            self._first(self._small(starts, failed)) or self._first(starts) or self._first(self._small(starts, others))
        )
        return None if found is None else self._shrunk(found)

    def _first(self, points: Iterable[DataPoint]) -> FoundFailure | None:
        return next((found for point in points if (found := self.failure(point)) is not None), None)

    def failure(self, point: DataPoint) -> FoundFailure | None:
        """The failure of the kernel on the first of two sets of data that makes it fail; None if neither does, if the
        kernel does not take the point, or if the time is over."""
        mark = (tuple(point.axes.items()), point.family, point.layout, point.threads, point.seed, repr(point.salts))
        if mark not in self._known:
            if monotonic() > self._end:
                return None
            self._known[mark] = self._judged(point)
            self._end = min(self._end, monotonic() + self._budget_s)
        return self._known[mark]

    def _judged(self, point: DataPoint) -> FoundFailure | None:
        made = self._cases(point)
        if made is None:
            return None
        for case in (made.first, made.second):
            if case is not None:
                accuracy = judged(self._workers, self._variant, point, case)
                if accuracy.failed:
                    return FoundFailure(point, case, accuracy)
        return None

    def _cases(self, point: DataPoint) -> Cases | None:
        op, variant = self._op, self._variant
        if any(constraint.refusal(point.axes) for constraint in variant.constraints):
            return None
        workload = Workload(op=op.name, axes=point.axes, family=point.family)
        try:
            material = Material(op, workload, point.seed, salts=(point.salts, point.salts))
            made = admitted(material.cases(variant.key), variant, point.axes)
        except (InvalidArgumentError, BrokenReferenceError):
            return None
        device = self._workers.installed.registry.devices[variant.key.device]
        return None if misfit(variant, made.first.inputs, point.layout, device) else made

    def _small(self, starts: Sequence[DataPoint], families: Sequence[str]) -> Iterator[DataPoint]:
        """Small points of these families; the smallest shapes first."""
        layouts = dict.fromkeys(["aligned", *(each.layout for each in starts)])
        shapes = [dict.fromkeys(self._op.axes, size) for size in _SMALL]
        for axes, family, layout in product(shapes, families, layouts):
            yield replace(starts[0], axes=axes, family=family, layout=layout, salts=None)

    def _shrunk(self, found: FoundFailure) -> FoundFailure:
        """The failure with each axis as small as it still fails, by bisection; the longest axis first."""
        simpler = self.failure(replace(found.point, salts=None, layout="aligned", threads=1))
        best = simpler or found
        for axis in sorted(best.point.axes, key=lambda each: -best.point.axes[each]):
            passing, failing = 0, best.point.axes[axis]
            while failing - passing > 1:
                middle = (passing + failing) // 2
                tried = self._at(best.point, axis, middle, failing)
                if tried is not None:
                    best, failing = tried, tried.point.axes[axis]
                else:
                    passing = middle
        return best

    def _at(self, point: DataPoint, axis: str, wanted: int, below: int) -> FoundFailure | None:
        """The failure with an axis of that size, or rounded up to one that is admitted; None if it does not fail."""
        for size in dict.fromkeys(-(-wanted // step) * step for step in _STEPS):
            tried = replace(point, axes={**point.axes, axis: size})
            if size < below and self._cases(tried) is not None:
                return self.failure(tried)
        return None


def judged(workers: Workers, variant: Variant, point: DataPoint, case: Case) -> Accuracy:
    """The accuracy of a variant on one case, in its own process; a new one after more than incorrect values."""
    worker = workers.of(variant)
    op = workers.installed.ops[variant.key.op]
    found = judge(
        op,
        worker.variant,
        Cases(case, None, in_place=False),
        point.axes,
        layout=point.layout,
        threads=point.threads,
        seed=point.seed,
        device=worker.device,
    ).accuracy
    if found.failed and not _HARMLESS.issuperset(found.caught_by):
        workers.renew(variant)
    return found


def replayed(workers: Workers, variant: Variant, point: DataPoint, logical: Mapping[str, Any]) -> FoundFailure:
    """The verdict of a variant on these inputs; `accuracy` may be PASS. Raises TritmarkError if it does not take
    them."""
    op = workers.installed.ops[variant.key.op]
    expected = expectations(op, point.axes, variant.key, op.reference(logical, point.axes, variant.key))
    encoded = op.encode(logical, point.axes, variant.key.format)
    made = admitted(Cases(Case(encoded, expected, logical), None, in_place=False), variant, point.axes)
    return FoundFailure(point, made.first, judged(workers, variant, point, made.first))
