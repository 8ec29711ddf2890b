"""Interleaved measurements that a Record does not have: each kernel against the best one for the same work, and whole
calls against the fastest one. Run it on an idle machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tritmark.harness.league.contenders import TEMPERATURES, Temperature, Work, admitted, best_of, by_work, contradicts
from tritmark.harness.league.model import WholeCall
from tritmark.harness.measure.alternate import Timed, alternate, calibrate
from tritmark.harness.measure.buffers import memory_of, rotation
from tritmark.harness.measure.clocks import PythonClock, clock_for
from tritmark.harness.measure.statistics import ENOUGH_SAMPLES, LEAST_SAMPLES, median
from tritmark.harness.measure.stopping import First, Interval, MinimumSamples, TimeLimit
from tritmark.harness.record import Ratio, Record, Run
from tritmark.harness.spec import Arrays, Axes, Device, KernelKey, Launch, Op, PublicCall, Variant, Workload
from tritmark.harness.text import groups
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.ceiling import LAYOUT_NOISE
from tritmark.harness.validate.sets import Sets
from tritmark.harness.worker import Workers

if TYPE_CHECKING:
    from tritmark.harness.providers import Candidate, Installed
    from tritmark.harness.worker.site import Site

BUDGET_S = 0.25
"""Time for one pair in seconds, unless its interval is narrow enough earlier."""
_PATIENCE = 8
_ROUNDS = 3
"""Most rounds in which all kernels are timed against the best one. Each round has another best, which was faster."""


@dataclass(slots=True)
class Session:
    """The interleaved measurements for a Record: of kernels that were timed together (together.py), and by `complete`
    of others, in pairs."""

    ratios: dict[tuple[str, Temperature], Ratio] = field(default_factory=dict)
    best: dict[tuple[Work, Temperature], str] = field(default_factory=dict)
    """The Runs to which the ratios refer."""
    calls: dict[Work, tuple[WholeCall, ...]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Measurements that failed, and why."""


def complete(
    session: Session,
    installed: Installed,
    record: Record,
    report: Callable[[str], None],
    *,
    candidates: Sequence[Candidate] = (),
) -> None:
    """Time each measured kernel of the Record against the best one for the same work, interleaved, unless the session
    has their ratios; and whole calls.

    `report` gets a line for each work. `candidates`: the sources of variants that no installed package has. An
    exception or a crash is recorded as a problem of its pair and does not stop the others.
    """
    right = groups.selectable(record)
    variants = {variant.id: variant for variant in installed.registry.variants}
    with Workers(installed, candidates) as workers:
        for work, runs in by_work(record, installed.scales_of).items():
            first = runs[0]
            report(f"{first.op} {groups.place(first.workload)}, {first.dtype}, interleaved")
            facts = first.workload
            workload = Workload(op=first.op, axes=facts.axes, family=facts.family, layout=facts.layout)
            material = Material(installed.ops[first.op], workload, facts.seed)
            known = [run for run in admitted(runs, right) if run.kernel in variants]
            for temperature in TEMPERATURES:
                if (work, temperature) in session.best:
                    continue
                rival = best = best_of(known, temperature)
                ratios: dict[str, Ratio] = {}
                problems: list[str] = []
                for _ in range(_ROUNDS):
                    if best is None:
                        break
                    rival = best
                    ratios, problems = _beside(workers, variants, rival, known, material, temperature)
                    session.best[work, temperature] = rival.id
                    best = sooner(rival, known, ratios)
                doubted = [run for run in known if _doubted(ratios.get(run.id), run, rival, temperature)]
                if rival is not None and doubted:
                    again, further = _beside(workers, variants, rival, doubted, material, temperature)
                    ratios, problems = ratios | again, problems + further
                session.ratios.update({(run, temperature): ratio for run, ratio in ratios.items()})
                session.problems += problems
            called = best_of([run for run in known if not run.peer], "hot")
            brought = _brought(installed, first.op, first.device, work[-1])
            if called is not None and brought:
                session.calls[work] = _calls(workers, variants[called.kernel], called, material, work[-1], session)


def _brought(installed: Installed, op: str, device: str, scales: str) -> list[PublicCall]:
    """The whole calls of that op and device, with weights that have such scales."""
    calls = [call for provider in installed.providers.values() for call in provider.calls()]
    kind = installed.registry.devices[device].type
    return [each for each in calls if (each.op, each.device, each.scales) == (op, kind, scales)]


def _beside(
    workers: Workers,
    variants: Mapping[str, Variant],
    best: Run,
    known: Sequence[Run],
    material: Material,
    temperature: Temperature,
) -> tuple[dict[str, Ratio], list[str]]:
    """By Run id: its time over the time of the best; and the measurements that failed."""
    ratios, problems = {}, []
    for run in known:
        if run.id == best.id:
            continue
        worker, facts = workers.of(variants[run.kernel]), run.workload
        encoded = (material.encoded(each.format)[0] for each in (run, best))
        arguments = best.kernel, *encoded, dict(facts.axes), run.threads, facts.seed, temperature == "cold"
        try:
            ratio: Ratio | None = worker.call(f"interleaved with {best.kernel}", by_turns_task, *arguments)
        except Exception as error:
            workers.renew(variants[run.kernel])
            problems.append(f"{run.id}, {temperature}: {type(error).__name__}: {error}")
            continue
        if ratio is not None:
            ratios[run.id] = ratio
    return ratios, problems


def _doubted(ratio: Ratio | None, run: Run, best: Run | None, temperature: Temperature) -> bool:
    """Whether to measure a ratio again before it is shown."""
    if ratio is None or best is None:
        return False
    return ratio.too_noisy or contradicts(ratio, run, best, temperature)


def sooner(best: Run, known: Sequence[Run], ratios: Mapping[str, Ratio]) -> Run | None:
    """The Run that is fastest relative to the best, if its whole interval is below 1."""
    quicker = [
        run
        for run in known
        if run.id != best.id and (ratio := ratios.get(run.id)) is not None and ratio.high < 1 and not ratio.too_noisy
    ]
    return min(quicker, key=lambda run: ratios[run.id].median, default=None)


def _calls(
    workers: Workers, variant: Variant, run: Run, material: Material, scales: str, session: Session
) -> tuple[WholeCall, ...]:
    arguments = (material.logical[0], dict(run.workload.axes), run.dtype, run.threads, run.workload.seed, scales)
    try:
        found: tuple[WholeCall, ...] = workers.of(variant).call("whole calls", calls_task, *arguments)
    except Exception as error:
        workers.renew(variant)
        session.problems.append(f"whole calls of {run.id}: {type(error).__name__}: {error}")
        return ()
    return found


def by_turns_task(
    site: Site,
    rival: str,
    own: Arrays,
    theirs: Arrays,
    axes: Axes,
    threads: int,
    seed: int,
    cold: bool,
    seconds: float = BUDGET_S,
) -> Ratio | None:
    """The time of the site's variant over the time of `rival` on the same device, interleaved for about `seconds`.

    None if `cold` and the arrays are too small to be cold."""
    other = next(each for each in site.installed.registry.variants if each.id == rival)
    other.load()
    best = _side(site.device, site.op, other, theirs, axes, threads, cold=cold)
    mine = _side(site.device, site.op, site.variant, own, axes, threads, cold=cold)
    if best is None or mine is None:
        return None
    rng = np.random.default_rng([seed, *site.variant.id.encode()])
    calibrate(best)
    calibrate(mine)
    return alternate(best, mine, rng, _enough(seconds)).ratio()


def _side(
    device: Device, op: Op, variant: Variant, inputs: Arrays, axes: Axes, threads: int, *, cold: bool
) -> Timed | None:
    memory = memory_of(device)
    key: KernelKey = variant.key
    sets = Sets(op, key, axes, (inputs,), memory, "aligned", rotation(memory))
    if cold and not sets.cold:
        return None
    each = sets.each if cold else sets.each[:1]
    launches: Sequence[Launch] = [variant.bind(one.inputs, one.outputs, axes, threads) for one in each]
    return Timed(launches, clock_for(device, launches), warm=not cold)


def _enough(seconds: float = BUDGET_S) -> First:
    return First(
        MinimumSamples(ENOUGH_SAMPLES, Interval(2 * LAYOUT_NOISE)),
        MinimumSamples(LEAST_SAMPLES, TimeLimit(seconds)),
        TimeLimit(_PATIENCE * seconds),
    )


class CalledFunction:
    """A Python function as a launch; `result` is that of the last call."""

    pointer = None
    bad = -1
    threads_used = 0
    ran = ""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.runs = 0
        self.result: Any = None

    def run(self) -> None:
        """Call it once."""
        self.result = self._call()
        self.runs += 1


def calls_task(
    site: Site, logical: Arrays, axes: Axes, dtype: str, threads: int, seed: int, scales: str
) -> tuple[WholeCall, ...]:
    """All whole calls of the site's op and device with weights that have such scales, interleaved with the fastest."""
    suited = _brought(site.installed, site.op.name, site.variant.key.device, scales)
    rng = np.random.default_rng([seed, len(suited)])
    reported, ready = [], []
    for each in suited:
        why = each.missing() if dtype in each.dtypes else f"it gives no {dtype}"
        if why is not None:
            reported.append(WholeCall(name=each.name, takes=each.takes, missing=why))
            continue
        timed = Timed([CalledFunction(each.prepare(logical, axes, threads))], PythonClock(), warm=True)
        ready.append((each, timed, calibrate(timed)))
    if not ready:
        return tuple(reported)
    best = min(ready, key=lambda one: one[2])
    # Interleaving may find another one to be the fastest.
    for last in (False, True):
        behind = [(one, alternate(best[1], one[1], rng, _enough())) for one in ready if one is not best]
        sooner = min(behind, key=lambda pair: pair[1].ratio().median, default=None)
        if last or sooner is None or sooner[1].ratio().median >= 1:
            break
        best = sooner[0]
    # The time of each other call is its ratio times the fastest one's time, because the speed of the machine differs
    # between comparisons.
    alone = [ns for _, found in behind for ns in found.a_ns] or [best[1].sample() for _ in range(ENOUGH_SAMPLES)]
    first = WholeCall(name=best[0].name, takes=best[0].takes, ns=median(alone))
    made = []
    for (each, _, _), found in behind:
        ratio = found.ratio()
        made.append(WholeCall(name=each.name, takes=each.takes, ns=median(alone) * ratio.median, behind=ratio))
    return (first, *sorted(made, key=lambda each: each.ns or 0.0), *reported)
