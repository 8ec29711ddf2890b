"""The figures of a sweep as lines: one for each kernel, cold or hot, and sizes of the other axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tritmark.harness.record import Measurement, Record, Run, Status
from tritmark.harness.text import groups, units

DATA = ("cold", "hot")


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One figure: a size of the swept axis, and the time of a call there with its 95 % interval."""

    size: int
    ns: float
    low_ns: float
    high_ns: float
    work: float
    """Least bytes or operations of a call, in the unit of the grid."""
    share: float | None = None
    """Of the ceiling; None if the probe is no ceiling here."""
    share_low: float | None = None
    share_high: float | None = None
    too_noisy: bool = False


@dataclass(frozen=True, slots=True)
class SweepLine:
    """The figures of one kernel in ascending order of sizes."""

    kernel: str
    label: str
    """The parts of the kernel's name in which the lines of the sweep differ."""
    points: tuple[SweepPoint, ...]


@dataclass(frozen=True, slots=True)
class SweepGrid:
    """What one picture shows: all kernels, with cold or hot figures, at fixed sizes of the other axes."""

    data: str
    """cold or hot."""
    fixed: Mapping[str, int]
    along: str
    unit: str
    """bytes/s or operations/s."""
    lines: tuple[SweepLine, ...]

    @property
    def place(self) -> str:
        """N=2560 K=2560, cold."""
        return ", ".join(filter(None, (" ".join(f"{name}={size}" for name, size in self.fixed.items()), self.data)))


def grids(record: Record, along: str) -> tuple[SweepGrid, ...]:
    """The grids of a sweep's Record, cold before hot. Only figures that no guard doubts are in them.

    The unit is operations per second as soon as a figure is limited by the rate of operations, so that one scale serves
    the whole grid.
    """
    runs = groups.sound(record)
    labels = _labels(runs)
    places: dict[tuple[tuple[str, int], ...], list[Run]] = {}
    for run in runs:
        fixed = tuple((name, size) for name, size in run.workload.axes.items() if name != along)
        places.setdefault(fixed, []).append(run)
    found = []
    for fixed, of in places.items():
        for data in DATA:
            timed = [(run, each) for run in of if (each := _figure(run, data)) is not None]
            if not timed:
                continue
            compute = any(each.against.ceiling == "compute" for _, each in timed)
            kernels: dict[str, list[SweepPoint]] = {}
            for run, each in timed:
                kernels.setdefault(run.kernel, []).append(_point(run, each, along, compute=compute))
            lines = tuple(
                SweepLine(kernel, labels[kernel], tuple(sorted(points, key=lambda point: point.size)))
                for kernel, points in kernels.items()
            )
            found.append(SweepGrid(data, dict(fixed), along, "operations/s" if compute else "bytes/s", lines))
    return tuple(found)


def noisy(every: Sequence[SweepGrid]) -> list[str]:
    """The figures that are too noisy, one sentence each."""
    return [
        f"{line.label} at {grid.along}={point.size}, {grid.place}: {units.time(point.ns)}, {units.NOISY}"
        for grid in every
        for line in grid.lines
        for point in line.points
        if point.too_noisy
    ]


def left_out(record: Record) -> list[str]:
    """What was requested and is in no grid: the reasons, each with its kernels and shapes."""
    drawn = {run.id for run in groups.sound(record)}
    found: dict[str, list[Run]] = {}
    for run in record.runs:
        if run.id not in drawn:
            found.setdefault(_why(run), []).append(run)
    return [
        f"{units.counted(len(runs), 'Run')} without a figure, first {runs[0].kernel} at "
        f"{groups.shape(runs[0].workload)}: {why}"
        for why, runs in found.items()
    ]


def _why(run: Run) -> str:
    if run.accuracy.status is not Status.PASS:
        return f"accuracy {run.accuracy.status.value.upper()}: {run.accuracy.reason}"
    if groups.doubted(run):
        return f"its figures are doubted: {run.performance.reason}"
    return f"performance {run.performance.status.value.upper()}: {run.performance.reason}"


def _figure(run: Run, data: str) -> Measurement | None:
    found: Measurement | None = getattr(run.performance, data)
    return found


def _point(run: Run, each: Measurement, along: str, *, compute: bool) -> SweepPoint:
    share = groups.fraction(each)
    work = run.performance.operations if compute else run.performance.read + run.performance.written
    return SweepPoint(
        size=run.workload.axes[along],
        ns=each.timing.median_ns,
        low_ns=each.timing.low_ns,
        high_ns=each.timing.high_ns,
        work=work,
        share=None if share is None else share.median,
        share_low=None if share is None else share.low,
        share_high=None if share is None else share.high,
        too_noisy=each.too_noisy,
    )


def _labels(runs: Sequence[Run]) -> dict[str, str]:
    """For each kernel, the parts of device/format/dtype/variant that differ between kernels, and always the variant."""
    parts = {run.kernel: (run.device, run.format, run.dtype, run.variant) for run in runs}
    differs = [len(set(each)) > 1 for each in zip(*parts.values(), strict=True)]
    return {kernel: " ".join(_shown(each, differs)) for kernel, each in parts.items()}


def _shown(parts: Sequence[str], differs: Sequence[bool]) -> Iterator[str]:
    for number, (part, several) in enumerate(zip(parts, differs, strict=True)):
        if (several or number == len(parts) - 1) and part != "none":
            yield part
