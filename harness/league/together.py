"""Kernels that do the same work, timed together in one process: in every round each of them has a sample, in an order
drawn anew, and so have the probes of the ceilings. So any two of them have been interleaved.

Cold, the arrays of all kernels together fill two rotations (see measure.buffers), each kernel's by the share that its
samples touch. So as many bytes are touched before the same arrays are used again as between two kernels with a rotation
each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import log
from typing import TYPE_CHECKING

import numpy as np

from tritmark.harness.league.contenders import TEMPERATURES, Temperature
from tritmark.harness.measure.alternate import Alternation, Timed, calibrate
from tritmark.harness.measure.buffers import ALIGNMENT, MOST_SETS, Rotation, memory_of, rotation
from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.measure.statistics import ENOUGH_SAMPLES, LEAST_SAMPLES
from tritmark.harness.measure.stopping import First, Interval, MinimumSamples, TimeLimit
from tritmark.harness.measure.survey import Field, Roofs, bind, compute_bytes, survey
from tritmark.harness.record import Measurement, Ratio
from tritmark.harness.spec import Arrays, Axes, Launch, Op, Variant
from tritmark.harness.text.units import counted
from tritmark.harness.validate.ceiling import LAYOUT_NOISE, TELLING, Limit, compared, limit_of
from tritmark.harness.validate.evidence import LaunchEvidence
from tritmark.harness.validate.guard_names import Complaint, Guard
from tritmark.harness.validate.performance import DIGITS, PAIRS
from tritmark.harness.validate.sets import Sets

if TYPE_CHECKING:
    from tritmark.harness.worker.site import Site

BUDGET_S = 0.1
"""Seconds of samples of a kernel at each temperature, unless its interval is narrow enough earlier."""
_PATIENCE = 8
_SAMPLE_NS = 200_000
_FIELD = "field of probes"
"""In Site.kept: the memory of the probes, for all work of the process."""


@dataclass(slots=True)
class TimedTogether:
    """One kernel's figures. Can be pickled."""

    cold: Measurement | None = None
    hot: Measurement | None = None
    ratios: dict[Temperature, Ratio] = field(default_factory=dict)
    """Its time over that of the best."""
    read: int = 0
    """Least bytes that the workload reads; the next two are as in Performance."""
    written: int = 0
    operations: int = 0
    evidence: LaunchEvidence = field(default_factory=LaunchEvidence)
    faults: list[Complaint] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    by_python: bool = False
    """The device's clock cannot call its code."""
    error: str = ""
    """The exception that it raised; then its figures are not complete."""


@dataclass(frozen=True, slots=True)
class Together:
    """The figures of all kernels of one work. Can be pickled."""

    kernels: Mapping[str, TimedTogether]
    """By id of the variant."""
    best: Mapping[Temperature, str]
    """Ids of the variants to which the ratios refer."""
    roofs: Roofs
    """The ceilings known now."""


def together_task(
    site: Site,
    op: str,
    sides: Mapping[str, Arrays],
    axes: Axes,
    threads: int,
    seed: int,
    roofs: Roofs,
    seconds: float = BUDGET_S,
) -> Together:
    """Time the variants with the ids of `sides`, each on inputs that are encoded for its format. `roofs`: the known
    ceilings. A variant that raises is reported, and the others are timed."""
    survey(site.device).learn(roofs)
    rng = np.random.default_rng([seed, *op.encode()])
    work = _Work(site, site.installed.ops[op], axes, threads, rng, seconds)
    variants = {each.id: each for each in site.installed.registry.variants}
    found = {id: TimedTogether() for id in sides}
    kernels: dict[str, _Kernel] = {}
    for id, inputs in sides.items():
        try:
            kernels[id] = _Kernel(work, variants[id], inputs, found[id])
        except Exception as error:
            found[id].error = f"{type(error).__name__}: {error}"
    best: dict[Temperature, str] = {}
    for temperature in TEMPERATURES:
        here = {id: each for id, each in kernels.items() if not each.found.error}
        fastest = work.timed(temperature, here)
        if fastest:
            best[temperature] = fastest
    for each in kernels.values():
        each.end()
    return Together(found, best, survey(site.device).snapshot())


@dataclass(slots=True)
class _Clock:
    """The time that one kernel's samples took."""

    ns: int = 0

    def __call__(self) -> int:
        return self.ns


@dataclass(slots=True)
class _Side:
    """A kernel or a probe at one temperature, and its samples by round."""

    timed: Timed
    own: _Clock = field(default_factory=_Clock)
    samples: dict[int, float] = field(default_factory=dict)

    def sample(self, number: int) -> None:
        """The sample of a round."""
        self.samples[number] = self.timed.sample()
        self.own.ns += round(self.samples[number] * self.timed.calls)

    def beside(self, other: _Side, stopped: str = "") -> Alternation:
        """The samples of the rounds in which both have one."""
        rounds = [each for each in self.samples if each in other.samples]
        own, theirs = (tuple(side.samples[each] for each in rounds) for side in (self, other))
        return Alternation(own, theirs, stopped).rounded(DIGITS)


class _Work:
    """What all kernels of one work share."""

    def __init__(self, site: Site, op: Op, axes: Axes, threads: int, rng: np.random.Generator, seconds: float) -> None:
        self.op, self.axes, self.threads = op, axes, threads
        self.device, self.memory = site.device, memory_of(site.device)
        self.rotation = rotation(self.memory)
        self._rng, self._seconds = rng, seconds
        if _FIELD not in site.kept:
            least = compute_bytes(site.device, site.device.cores())
            site.kept[_FIELD] = Field(least, self.rotation, self.memory)
        self._field: Field = site.kept[_FIELD]

    def timed(self, temperature: Temperature, kernels: Mapping[str, _Kernel]) -> str:
        """Time the kernels hot or cold, and add their figures and ratios. Returns the id of the best; "" for none."""
        cold = temperature == "cold"
        limits = {id: self._limit(each, cold) for id, each in kernels.items() if not cold or each.cold}
        # One probe of a name serves all kernels: that of the most bytes.
        largest = {limit.roof.ceiling.name: limit for limit in sorted(limits.values(), key=lambda each: each.nbytes)}
        limits = {id: replace(largest[each.roof.ceiling.name], need=each.need) for id, each in limits.items()}
        probes = {name: self._probe(limit) for name, limit in largest.items()}
        touched = sum(kernels[id].touched for id in limits)
        sides: dict[str, _Side] = {}
        for id in limits:
            kernel = kernels[id]
            try:
                sides[id] = _Side(kernel.turn(touched) if cold else kernel.hot)
            except Exception as error:
                kernel.found.error = f"{type(error).__name__}: {error}"
        if not sides:
            return ""
        first = min(sides, key=lambda id: kernels[id].call_ns)
        stopped = self._rounds(sides, probes, first)
        best = _best(sides, first)
        for id, side in sides.items():
            limit, found = limits[id], kernels[id].found
            if id != best:
                found.ratios[temperature] = sides[best].beside(side).ratio()
            figure = compared(
                side.beside(probes[limit.roof.ceiling.name], stopped[id]),
                limit,
                side.timed,
                device=self.device,
                field=self._field,
                threads=self.threads,
                footprint=kernels[id].footprint,
                rotation=2 * self.rotation.nbytes if cold else kernels[id].footprint,
                wanted=self.rotation,
                temperature=temperature,
                faults=found.faults,
                remarks=found.remarks,
            )
            setattr(found, temperature, figure)
            if side.timed.made != kernels[id].ran(side.timed):
                made = counted(side.timed.made, "call")
                found.faults.append(Complaint(Guard.RUNS, f"{temperature}: {made} made, but its code counts others"))
        return best

    def _limit(self, kernel: _Kernel, cold: bool) -> Limit:
        traffic = self.op.traffic(self.axes, kernel.variant.key)
        return limit_of(self.device, traffic, kernel.footprint, self._field, self.threads, cold=cold)

    def _probe(self, limit: Limit) -> _Side:
        timed = bind(
            limit.roof.ceiling,
            self.device,
            self._field,
            limit.nbytes,
            threads=limit.roof.threads,
            cold=limit.cold,
            rng=self._rng,
        )
        calibrate(timed)
        return _Side(timed)

    def _rounds(self, sides: Mapping[str, _Side], probes: Mapping[str, _Side], first: str) -> dict[str, str]:
        """Sample in rounds until every kernel has enough, relative to the `first`. Returns why each has."""
        rules = {id: self._enough(side.own) for id, side in sides.items() if id != first} or {
            first: self._enough(sides[first].own)
        }
        active, number = list(rules), 0
        while active:
            taking = [sides[id] for id in {*active, first}] + list(probes.values())
            for index in self._rng.permutation(len(taking)):
                taking[index].sample(number)
            for id in list(active):
                base = sides[first].samples[number] if id != first else 1.0
                rules[id].add(log(sides[id].samples[number] / base))
                if rules[id].done():
                    active.remove(id)
            number += 1
        return {id: rules[id].reason if id in rules else "interval" for id in sides}

    def _enough(self, own: _Clock) -> First:
        return First(
            MinimumSamples(ENOUGH_SAMPLES, Interval(2 * LAYOUT_NOISE)),
            MinimumSamples(PAIRS, Interval(TELLING)),
            MinimumSamples(LEAST_SAMPLES, TimeLimit(self._seconds, own)),
            TimeLimit(_PATIENCE * self._seconds, own),
        )


def _best(sides: Mapping[str, _Side], first: str) -> str:
    """The fastest relative to the first; the first itself if no other is certainly faster."""
    ratios = {id: sides[first].beside(side).ratio() for id, side in sides.items() if id != first}
    faster = [id for id, ratio in ratios.items() if ratio.high < 1 and not ratio.too_noisy]
    return min(faster, key=lambda id: ratios[id].median, default=first)


class _Kernel:
    """A variant, bound."""

    def __init__(self, work: _Work, variant: Variant, inputs: Arrays, found: TimedTogether) -> None:
        variant.load()
        self._work, self.variant, self._inputs, self.found = work, variant, inputs, found
        (self._one,) = self._sets(1).each
        launch = self._bind(self._one.inputs, self._one.outputs)
        launch.run()
        self._launches: list[Launch] = [launch]
        self._before = [launch.runs]
        self.hot = Timed([launch], clock_for(work.device, [launch]), warm=True)
        self.call_ns = calibrate(self.hot)
        self.hot.made, self._before[0] = 0, launch.runs
        traffic = work.op.traffic(work.axes, variant.key)
        found.read, found.written, found.operations = traffic.read, traffic.written, traffic.operations
        found.by_python = launch.pointer is None
        self.footprint = max(ALIGNMENT, traffic.read + traffic.written)
        self._calls = max(1, round(_SAMPLE_NS / self.call_ns))

    @property
    def cold(self) -> bool:
        """Whether its arrays are large enough to be cold."""
        return self._work.rotation.sets_for(self.footprint) is not None

    @property
    def touched(self) -> int:
        """Bytes that a cold sample touches."""
        return self._calls * self.footprint

    def turn(self, touched: int) -> Timed:
        """Launches with as many arrays as are cold if all kernels' samples touch that many bytes in a round."""
        count = min(MOST_SETS, 1 + -(-2 * self._work.rotation.nbytes * self._calls // touched))
        if self.variant.packs:  # each launch has arrays of its own
            outputs = [{name: np.empty_like(each) for name, each in self._one.outputs.items()} for _ in range(count)]
            launches = [self._bind(self._one.inputs, each) for each in outputs]
        else:
            launches = [self._bind(each.inputs, each.outputs) for each in self._sets(count).each]
        self._launches += launches
        self._before += [launch.runs for launch in launches]
        timed = Timed(launches, clock_for(self._work.device, launches), calls=self._calls)
        timed.fit()
        return timed

    def ran(self, timed: Timed) -> int:
        """Runs that the launches of a side have counted."""
        before = dict(zip(map(id, self._launches), self._before, strict=True))
        return sum(launch.runs - before[id(launch)] for launch in timed.launches)

    def end(self) -> None:
        """Add the evidence of its launches."""
        for launch in self._launches:
            self.found.evidence.add(launch, launch.runs, self._work.device.proof(launch))

    def _sets(self, count: int) -> Sets:
        work = self._work
        sized = Sets(work.op, self.variant.key, work.axes, (self._inputs,), work.memory, "aligned", Rotation(1, 1))
        if count == 1:
            return sized
        turn = Rotation(nbytes=count * sized.nbytes, wanted=count * sized.nbytes)
        return Sets(work.op, self.variant.key, work.axes, (self._inputs,), work.memory, "aligned", turn)

    def _bind(self, inputs: Arrays, outputs: Arrays) -> Launch:
        return self.variant.bind(inputs, outputs, self._work.axes, self._work.threads)
