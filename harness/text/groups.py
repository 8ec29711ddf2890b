"""What the sections count and group: the verdict of a Run, the Runs of a kernel, the fastest variant of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, log

from tritmark.harness.record import DIMENSIONS, Measurement, Ratio, Record, Run, Status, WorkloadFacts

WORST_FIRST = (Status.FAIL, Status.ERROR, Status.AMBIGUOUS, Status.PASS, Status.NOT_RUN)


def worst(statuses: Iterable[Status]) -> Status:
    """The status that a reader has to know of; NOT_RUN where there is nothing else."""
    present = set(statuses)
    return next((status for status in WORST_FIRST if status in present), Status.NOT_RUN)


def verdict(run: Run) -> Status:
    """The Run's verdict: the worst of its dimensions, but without a judgement of accuracy it is no PASS."""
    found = worst((run.accuracy.status, run.performance.status, run.memory.status, run.cross.status))
    return Status.NOT_RUN if found is Status.PASS and run.accuracy.status is Status.NOT_RUN else found


def shape(workload: WorkloadFacts) -> str:
    """M=1 N=2560 K=6912; where cases of many shapes were drawn, "drawn"."""
    return workload.family if not workload.axes else " ".join(f"{name}={size}" for name, size in workload.axes.items())


def place(workload: WorkloadFacts) -> str:
    """The shape, and what it is known as."""
    return f"{shape(workload)}, {workload.title}" if workload.title else shape(workload)


def anchor(kernel: str) -> str:
    """An id for the page that any kernel name may be turned into; equal names give equal ids."""
    from hashlib import sha256

    return "k" + sha256(kernel.encode("utf-8", "surrogatepass")).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class KernelRuns:
    """All Runs of one kernel, the ones that a reader has to know of first."""

    id: str
    runs: tuple[Run, ...]

    @property
    def anchor(self) -> str:
        """Where the page shows the Runs."""
        return anchor(self.id)

    @property
    def first(self) -> Run:
        """Any Run, for what all of them share."""
        return self.runs[0]

    @property
    def status(self) -> Status:
        """The worst verdict of its Runs."""
        return worst(map(verdict, self.runs))


def kernels(record: Record) -> list[KernelRuns]:
    """The Runs of each kernel; kernels that fail first, else in the Record's order."""
    found = by_kernel(record.runs)
    grouped = [
        KernelRuns(name, tuple(sorted(runs, key=lambda run: WORST_FIRST.index(verdict(run)))))
        for name, runs in found.items()
    ]
    return sorted(grouped, key=lambda kernel: WORST_FIRST.index(kernel.status))


def sound(record: Record) -> list[Run]:
    """The Runs with a figure to compare: the accuracy passed, and the performance was neither refused nor without a
    figure."""
    return [
        run
        for run in record.runs
        if run.accuracy.status is Status.PASS
        and run.performance.status in {Status.PASS, Status.AMBIGUOUS}
        and not doubted(run)
        and (run.performance.cold or run.performance.hot)
    ]


def right(record: Record) -> list[Run]:
    """Those of the sound Runs that may be the best: the kernel may be selected, and its time is not too noisy."""
    return steady(selectable(record))


def selectable(record: Record) -> list[Run]:
    """The sound Runs of kernels that are incorrect in no other Run, call no other kernel, and are no peers, which are
    never selected."""
    wrong = {run.kernel for run in record.runs if run.accuracy.failed or run.peer or run.accuracy.borrowed}
    return [run for run in sound(record) if run.kernel not in wrong]


def steady(runs: Iterable[Run]) -> list[Run]:
    """Those whose time can be compared: cold, or hot where there is no cold figure, and not too noisy."""
    return [run for run in runs if (footing := _compared(run)) is None or not footing.timing.too_noisy]


def _compared(run: Run) -> Measurement | None:
    return run.performance.cold or run.performance.hot


@dataclass(frozen=True, slots=True)
class Figure:
    """A Run's time at one temperature, and the part of the ceiling that goes with it."""

    run: Run
    data: str
    """cold or hot."""
    footing: Measurement


def figures(runs: Iterable[Run]) -> list[Figure]:
    """Every figure that no guard doubts."""
    return [
        Figure(run, data, footing)
        for run in runs
        if not doubted(run)
        for data, footing in (("cold", run.performance.cold), ("hot", run.performance.hot))
        if footing is not None
    ]


def of_which_right(runs: Iterable[Run]) -> str:
    """3/4: kernels that are right of those that were judged."""
    ended = [worst(run.accuracy.status for run in of) for of in by_kernel(runs).values()]
    judged = [each for each in ended if each is not Status.NOT_RUN]
    return f"{judged.count(Status.PASS)}/{len(judged)}"


def doubted(run: Run) -> bool:
    """A guard does not believe the Run's figures: they are not to be shown as figures."""
    return bool(getattr(run.performance, "doubted", False))


def causes(runs: Iterable[Run], dimension: str) -> list[str]:
    """The reasons why a dimension was not run, the commonest first."""
    found = Counter(run.verdict(dimension).reason for run in runs if run.verdict(dimension).status is Status.NOT_RUN)
    return [reason for reason, _ in found.most_common()]


def not_run(runs: Sequence[Run]) -> list[tuple[str, str, int, int]]:
    """What was not run, by cause: dimensions, reason, how many Runs and of how many kernels; the commonest first."""
    found: dict[str, dict[str, set[str]]] = {}
    for run in runs:
        for dimension in DIMENSIONS:
            verdict = run.verdict(dimension)
            if verdict.status is Status.NOT_RUN:
                found.setdefault(verdict.reason, {}).setdefault(dimension, set()).add(run.id)
    kernels = {run.id: run.kernel for run in runs}
    rows = []
    for reason, by in found.items():
        ids = set().union(*by.values())
        rows.append(
            (", ".join(each for each in DIMENSIONS if each in by), reason, len(ids), len({kernels[id] for id in ids}))
        )
    return sorted(rows, key=lambda row: -row[2])


def counted(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """For each dimension how many Runs ended in which status."""
    return {
        dimension: dict(sorted(Counter(run.verdict(dimension).status.value for run in runs).items()))
        for dimension in DIMENSIONS
    }


def part(footing: Measurement | None) -> float | None:
    """The part of the ceiling that was reached; None, too, where the probe was no ceiling or this is too noisy."""
    ratio = fraction(footing)
    return None if ratio is None or ratio.too_noisy else ratio.median


def fraction(footing: Measurement | None) -> Ratio | None:
    """The same with its interval."""
    return None if footing is None or footing.against.lost else footing.against.fraction


def mean(fractions: Iterable[float | None]) -> float | None:
    """Geometric mean of the fractions that were taken and are above zero."""
    logs = [log(value) for value in fractions if value]
    return exp(fsum(logs) / len(logs)) if logs else None


def devices(record: Record) -> list[str]:
    """The devices that there are Runs of, in the Record's order."""
    return list(dict.fromkeys(run.device for run in record.runs))


def simulated(record: Record) -> list[str]:
    """The devices that a simulator stood in for."""
    lanes = [lane.device for lane in record.lanes if lane.simulated]
    return list(
        dict.fromkeys(
            [*lanes, *(run.device for run in record.runs if run.receipt is not None and run.receipt.simulated)]
        )
    )


def by_kernel(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The Runs of each kernel."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.kernel, []).append(run)
    return found


def by_key(runs: Iterable[Run]) -> dict[tuple[str, str, str, str], list[Run]]:
    """Runs that do the same work for the same key: (device, op, format, dtype)."""
    found: dict[tuple[str, str, str, str], list[Run]] = {}
    for run in runs:
        found.setdefault((run.device, run.op, run.format, run.dtype), []).append(run)
    return found


def by_variant(runs: Iterable[Run]) -> Mapping[str, list[Run]]:
    """The Runs of each variant."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.variant, []).append(run)
    return found


def best_variant(runs: Iterable[Run]) -> list[Run]:
    """The Runs of the variant that takes the least time where most bytes move: cold, or hot where there is no cold
    figure. Of equal times the earlier one in the Record."""
    taken = list(runs)
    place = largest(taken).workload.id
    best = min((run for run in taken if run.workload.id == place), key=median_ns)
    return [run for run in taken if run.variant == best.variant]


def largest(runs: Iterable[Run]) -> Run:
    """The Run whose workload moves most; of several on that workload the one that takes the least time."""
    return max(runs, key=lambda run: (run.performance.read + run.performance.written, -median_ns(run)))


def fastest(runs: Iterable[Run]) -> list[Run]:
    """For each key, workload and number of threads the Run that takes the least time."""
    return list(_least(runs, lambda run: (run.device, run.op, run.format, run.dtype, run.workload.id, run.threads)))


def wins(record: Record, best: Run) -> tuple[int, int]:
    """On how many of the workloads of its key the variant of `best` takes the least time of the right kernels, and how
    many workloads there are."""
    same = by_key(right(record)).get((best.device, best.op, best.format, best.dtype), [])
    least = _least(same, lambda run: run.workload.id)
    return sum(run.variant == best.variant for run in least), len(least)


def _least(runs: Iterable[Run], place: Callable[[Run], Hashable]) -> Collection[Run]:
    found: dict[Hashable, Run] = {}
    for run in runs:
        known = found.get(place(run))
        if known is None or median_ns(run) < median_ns(known):
            found[place(run)] = run
    return found.values()


def median_ns(run: Run) -> float:
    """Time of a call: cold, or hot where there is no cold figure; infinite where there is neither."""
    footing = _compared(run)
    return float("inf") if footing is None else footing.timing.median_ns
