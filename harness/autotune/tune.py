"""Finds the fastest correct instance of each variant and shape, within a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from time import monotonic
from typing import Any

from tritmark.harness.autotune import ties
from tritmark.harness.autotune.keep import keep
from tritmark.harness.autotune.tasks import Named, Raced, names_task, outputs_task, race_task
from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import UsageError
from tritmark.harness.providers import Installed
from tritmark.harness.record import Ratio
from tritmark.harness.spec import Axes, Device, Variant, Workload
from tritmark.harness.tuned import Choice
from tritmark.harness.validate.cases import Case, Material
from tritmark.harness.validate.ceiling import LAYOUT_NOISE
from tritmark.harness.validate.compare import compare
from tritmark.harness.worker import Workers

SCREENING_S = 0.15
"""Seconds to time each instance in the screening."""
CONFIRMING_S = 2.0
"""Seconds of the second measurement. The choice rests on it alone, since the fastest of many is partly luck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A variant at a shape."""

    variant: Variant
    axes: Axes
    title: str = ""


@dataclass(slots=True, kw_only=True)
class Tuned:
    """The result of a job."""

    job: Job
    names: tuple[str, ...] = ()
    """The instances, the built-in choice first."""
    raced: dict[str, Raced] = field(default_factory=dict)
    """Screening results of the instances that were timed."""
    wrong: dict[str, str] = field(default_factory=dict)
    """Incorrect instances, each with its first incorrect element."""
    broke: dict[str, str] = field(default_factory=dict)
    """Instances that could not be run, and why."""
    chosen: str = ""
    """The instance that is kept; "" for the built-in choice."""
    confirmed: Raced | None = None
    """The second measurement of the best instance: its time over the built-in choice's."""
    tie: str = ""
    """The instance with the fastest median, if the kept one ties with it and is earlier in the order; "" without a
    tie."""
    note: str = ""
    """Why there is no choice, if the reason is not the times."""

    @property
    def builtin_ns(self) -> float | None:
        """Time of a call of the built-in choice in the last race; None without a race."""
        raced = [*self.raced.values(), *([] if self.confirmed is None else [self.confirmed])]
        return raced[-1].builtin_ns if raced else None

    @property
    def won(self) -> Ratio | None:
        """The time of the kept instance over the built-in choice's."""
        return self.confirmed.ratio if self.chosen and self.confirmed is not None else None


def jobs(
    installed: Installed,
    shapes: Mapping[str, Sequence[tuple[Axes, str]]],
    *,
    variant: str = "*",
    device: str = "*",
) -> Iterator[Job]:
    """The variants with instances, at each shape (axes, title) of their op: those that match the glob, or with "*" the
    default variant of each key."""
    for op, sizes in shapes.items():
        for key in installed.keys(op):
            if not fnmatchcase(key.device, device):
                continue
            for axes, title in sizes:
                fitting = [each for each, why in installed.registry.candidates(key, axes) if why is None]
                if variant == "*":
                    fitting = [each for each in fitting if not each.tier.named_only]
                    fitting = [max(fitting, key=lambda each: each.precedence)] if fitting else []
                for each in fitting:
                    named = fnmatchcase(each.name, variant) or fnmatchcase(each.id, variant)
                    if named and each.instances is not None:
                        yield Job(variant=each, axes=axes, title=title)


def untimed(device: Device) -> str:
    """Why nothing on the device can be timed; "" if it can."""
    if device.simulated():
        return "a simulated device has no speed"
    return "" if device.clock is not None else "the device brings no clock"


def tune(
    workers: Workers, asked: Sequence[Job], *, seconds: float, seed: int, report: Callable[[Tuned], None] | None = None
) -> list[Tuned]:
    """Tune all jobs within `seconds`, each in an equal share of the remaining time. Stores each result immediately."""
    if not asked:
        raise UsageError("no kernel with several instances takes these shapes; legal: see `tritmark list variants`")
    end, found = monotonic() + seconds, []
    for index, job in enumerate(asked):
        now = monotonic()
        found.append(_Tuner(workers, job, seed, now + (end - now) / (len(asked) - index)).run())
        if report is not None:
            report(found[-1])
    return found


class _Tuner:
    """One job."""

    def __init__(self, workers: Workers, job: Job, seed: int, end: float) -> None:
        self._workers, self._job, self._seed, self._end = workers, job, seed, end
        self._op = workers.installed.ops[job.variant.key.op]
        self._untimed = untimed(workers.installed.registry.devices[job.variant.key.device])
        self._found = Tuned(job=job)

    def run(self) -> Tuned:
        job, found = self._job, self._found
        try:
            named: Named = self._call("its instances", names_task, dict(job.axes))
        except Exception as why:
            found.note = f"{type(why).__name__}: {why}"
            return found
        found.names = named.names
        builtin, *others = found.names
        first = self._case(self._op.input_families[0])
        if not self._right(builtin, first):
            found.note = "the built-in choice is incorrect"
            return found
        for name in others:
            if self._left() <= 0:
                found.note = "the time ended before every instance was judged"
                break
            if self._right(name, first) and not self._untimed:
                raced = self._race(name, first, SCREENING_S)
                if raced is not None:
                    found.raced[name] = raced
        if self._untimed:
            found.note = f"{self._untimed}: nothing is kept"
            return found
        self._choose(first)
        if found.chosen or not found.note:
            self._keep(named)
        return found

    def _choose(self, first: Case) -> None:
        """Choose the fastest, if it is correct on all input families and faster in the second measurement."""
        found = self._found
        quicker = {name: raced.ratio for name, raced in found.raced.items() if _faster(raced.ratio)}
        while quicker:
            if self._left() <= 0:
                found.note = "the time ended before the fastest was judged and timed again"
                return
            name, fastest, tie = ties.taken(quicker, found.names, lambda a, b: self._again(a, b, first))
            del quicker[name]
            if not all(self._right(name, self._case(family)) for family in self._op.input_families[1:]):
                continue
            found.confirmed = self._race(name, first, min(CONFIRMING_S, max(SCREENING_S, self._left())))
            again = None if found.confirmed is None else found.confirmed.ratio
            if again is not None and _faster(again) and again.high < 1 - LAYOUT_NOISE:
                found.chosen, found.tie = name, fastest if tie is not None else ""
                return
            if tie is None:
                return

    def _again(self, name: str, other: str, case: Case) -> Ratio | None:
        """The time of one instance over another's, from both interleaved with the built-in choice."""
        a, b = (self._race(each, case, min(CONFIRMING_S, max(SCREENING_S, self._left()))) for each in (name, other))
        if a is None or b is None:
            return None
        return Ratio(
            median=a.ratio.median / b.ratio.median,
            low=a.ratio.low / b.ratio.high,
            high=a.ratio.high / b.ratio.low,
            pairs=min(a.ratio.pairs, b.ratio.pairs),
        )

    def _keep(self, named: Named) -> None:
        job, found = self._job, self._found
        choice = None
        if found.chosen and found.confirmed is not None:
            ratio = found.confirmed.ratio
            choice = Choice(
                variant=job.variant.id,
                axes=dict(job.axes),
                identity=named.identity,
                instance=found.chosen,
                builtin=found.names[0],
                ratio=(ratio.median, ratio.low, ratio.high),
                created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            )
        keep(job.variant.id, job.axes, named.identity, choice)

    def _left(self) -> float:
        return self._end - monotonic()

    def _call(self, what: str, task: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return self._workers.of(self._job.variant).call(what, task, *arguments)
        except Exception:
            self._workers.renew(self._job.variant)
            raise

    def _case(self, family: str) -> Case:
        """Inputs of a family, and the expected outputs."""
        job = self._job
        material = Material(self._op, Workload(op=self._op.name, axes=job.axes, family=family), self._seed)
        return material.cases(job.variant.key, by_turns=True).first

    def _right(self, name: str, case: Case) -> bool:
        """Whether an instance's outputs match the reference."""
        found, axes = self._found, dict(self._job.axes)
        try:
            outputs = self._call(f"judging {name}", outputs_task, name, case.inputs, axes, 1)
        except Exception as why:
            found.broke[name] = f"{type(why).__name__}: {why}"
            return False
        like = self._op.outputs_like(axes, self._job.variant.key)
        for expected in case.expected:
            shape, dtype = like[expected.name]
            compared = compare(expected, outputs[expected.name].view(named_dtype(dtype)).reshape(shape))
            if compared.first is not None:
                first = compared.first
                found.wrong[name] = (
                    f"{first.output}{list(first.index)} is {first.found}, expected {first.expected}; "
                    f"{compared.wrong.size} of {expected.values.size} elements are incorrect"
                )
                found.raced.pop(name, None)
                return False
        return True

    def _race(self, name: str, case: Case, seconds: float) -> Raced | None:
        """Time an instance interleaved with the built-in choice; None if one of them broke."""
        arguments = name, case.inputs, dict(self._job.axes), 1, self._seed, seconds
        try:
            raced: Raced = self._call(f"timing {name}", race_task, *arguments)
        except Exception as why:
            self._found.broke[name] = f"{type(why).__name__}: {why}"
            return None
        return raced


def _faster(ratio: Ratio) -> bool:
    """Whether a ratio of times is below 1 and not too noisy."""
    return ratio.median < 1 and not ratio.too_noisy
