"""Counts and groups of Runs: the verdict of a Run, the Runs of a kernel, the fastest variants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, log

from tritmark.harness.record import DIMENSIONS, Measurement, Ratio, Record, Run, Status, WorkloadFacts

WORST_FIRST = (Status.FAIL, Status.ERROR, Status.AMBIGUOUS, Status.PASS, Status.NOT_RUN)


def worst(statuses: Iterable[Status]) -> Status:
    """The first of WORST_FIRST that occurs; NOT_RUN for none."""
    present = set(statuses)
    return next((status for status in WORST_FIRST if status in present), Status.NOT_RUN)


def verdict(run: Run) -> Status:
    """The Run's verdict: the worst of its dimensions. Without a judgement of accuracy, PASS becomes NOT_RUN."""
    found = worst((run.accuracy.status, run.performance.status, run.memory.status, run.cross.status))
    return Status.NOT_RUN if found is Status.PASS and run.accuracy.status is Status.NOT_RUN else found


def shape(workload: WorkloadFacts) -> str:
    """M=1 N=2560 K=6912; the family, "drawn", for drawn cases of many shapes."""
    return workload.family if not workload.axes else " ".join(f"{name}={size}" for name, size in workload.axes.items())


def place(workload: WorkloadFacts) -> str:
    """The shape and its title."""
    return f"{shape(workload)}, {workload.title}" if workload.title else shape(workload)


def anchor(kernel: str) -> str:
    """An HTML id for any kernel name; equal names give equal ids."""
    from hashlib import sha256

    return "k" + sha256(kernel.encode("utf-8", "surrogatepass")).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class KernelRuns:
    """All Runs of one kernel, the worst first."""

    id: str
    runs: tuple[Run, ...]

    @property
    def anchor(self) -> str:
        """The HTML id of the Runs."""
        return anchor(self.id)

    @property
    def first(self) -> Run:
        """The worst Run."""
        return self.runs[0]

    @property
    def status(self) -> Status:
        """The worst verdict of its Runs."""
        return worst(map(verdict, self.runs))


def kernels(record: Record) -> list[KernelRuns]:
    """The Runs of each kernel: the worst kernels first, otherwise in the Record's order."""
    found = by_kernel(record.runs)
    grouped = [
        KernelRuns(name, tuple(sorted(runs, key=lambda run: WORST_FIRST.index(verdict(run)))))
        for name, runs in found.items()
    ]
    return sorted(grouped, key=lambda kernel: WORST_FIRST.index(kernel.status))


def sound(record: Record) -> list[Run]:
    """The Runs with a figure to compare: accuracy is PASS, performance is PASS or AMBIGUOUS, and no guard doubts it."""
    return [
        run
        for run in record.runs
        if run.accuracy.status is Status.PASS
        and run.performance.status in {Status.PASS, Status.AMBIGUOUS}
        and not doubted(run)
        and (run.performance.cold or run.performance.hot)
    ]


def right(record: Record) -> list[Run]:
    """The sound Runs that may be the best: the kernel may be selected, and its time is not too noisy."""
    return steady(selectable(record))


def selectable(record: Record) -> list[Run]:
    """The sound Runs of kernels that are incorrect in no Run, call no other kernel, and are not peers."""
    wrong = {run.kernel for run in record.runs if run.accuracy.failed or run.peer or run.accuracy.borrowed}
    return [run for run in sound(record) if run.kernel not in wrong]


def steady(runs: Iterable[Run]) -> list[Run]:
    """The Runs whose time, cold or else hot, is not too noisy."""
    return [run for run in runs if (footing := _compared(run)) is None or not footing.timing.too_noisy]


def _compared(run: Run) -> Measurement | None:
    return run.performance.cold or run.performance.hot


@dataclass(frozen=True, slots=True)
class Figure:
    """A Run's cold or hot time, with its share of the ceiling."""

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
    """3/4: the number of correct kernels of the judged ones."""
    ended = [worst(run.accuracy.status for run in of) for of in by_kernel(runs).values()]
    judged = [each for each in ended if each is not Status.NOT_RUN]
    return f"{judged.count(Status.PASS)}/{len(judged)}"


def doubted(run: Run) -> bool:
    """Whether a guard doubts the Run's figures, so that they must not be shown."""
    return bool(getattr(run.performance, "doubted", False))


def causes(runs: Iterable[Run], dimension: str) -> list[str]:
    """The reasons why a dimension was not run, the most frequent first."""
    found = Counter(run.verdict(dimension).reason for run in runs if run.verdict(dimension).status is Status.NOT_RUN)
    return [reason for reason, _ in found.most_common()]


def not_run(runs: Sequence[Run]) -> list[tuple[str, str, int, int]]:
    """NOT RUN by cause: dimensions, reason, number of Runs, number of kernels; the most frequent first."""
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
    """For each dimension, the number of Runs in each status."""
    return {
        dimension: dict(sorted(Counter(run.verdict(dimension).status.value for run in runs).items()))
        for dimension in DIMENSIONS
    }


def part(footing: Measurement | None) -> float | None:
    """The share of the ceiling; None without one, if the probe is not a ceiling here, or if it is too noisy."""
    ratio = fraction(footing)
    return None if ratio is None or ratio.too_noisy else ratio.median


def fraction(footing: Measurement | None) -> Ratio | None:
    """The share of the ceiling with its interval; None without one or if the probe is not a ceiling here."""
    return None if footing is None or footing.against.lost else footing.against.fraction


def mean(fractions: Iterable[float | None]) -> float | None:
    """Geometric mean of the fractions above zero; None for none."""
    logs = [log(value) for value in fractions if value]
    return exp(fsum(logs) / len(logs)) if logs else None


def devices(record: Record) -> list[str]:
    """The devices of the Runs, in the Record's order."""
    return list(dict.fromkeys(run.device for run in record.runs))


def simulated(record: Record) -> list[str]:
    """The simulated devices."""
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
    """The Runs of each key: (device, op, format, dtype)."""
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
    """The Runs of the variant that is fastest, cold or else hot, on the workload that moves the most bytes. Of equal
    times, the earlier one in the Record."""
    taken = list(runs)
    place = largest(taken).workload.id
    best = min((run for run in taken if run.workload.id == place), key=median_ns)
    return [run for run in taken if run.variant == best.variant]


def largest(runs: Iterable[Run]) -> Run:
    """The Run whose workload moves the most bytes; of several, the fastest."""
    return max(runs, key=lambda run: (run.performance.read + run.performance.written, -median_ns(run)))


def fastest(runs: Iterable[Run]) -> list[Run]:
    """The fastest Run for each key, workload and thread count."""
    return list(_least(runs, lambda run: (run.device, run.op, run.format, run.dtype, run.workload.id, run.threads)))


def wins(record: Record, best: Run) -> tuple[int, int]:
    """The number of workloads of its key on which the variant of `best` is the fastest correct one, and the number of
    workloads."""
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
    """Time of a call in ns: cold, or else hot; infinite if there is neither."""
    footing = _compared(run)
    return float("inf") if footing is None else footing.timing.median_ns
