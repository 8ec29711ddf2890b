"""The ceiling that limits a workload, and a kernel's times beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tritmark.harness.measure.alternate import Alternation, Timed
from tritmark.harness.measure.buffers import Rotation
from tritmark.harness.measure.statistics import LEAST_SAMPLES, interval, median
from tritmark.harness.measure.survey import BYTES, FastestProbe, Field, compute_bytes, survey
from tritmark.harness.record import CeilingComparison, Measurement, Timing
from tritmark.harness.spec import Device, Traffic
from tritmark.harness.validate.guard_names import Complaint, Guard

LAYOUT_NOISE = 0.004
"""The place that the linker gives a kernel changes its time by 0.1 to 0.4 %. No figure is better, so finer sampling is
waste."""

TELLING = 0.05
"""The difference that measurements must resolve. A kernel further below the physical floor does not do its work. A
probe further behind a kernel lost."""

_LOADED = 2.0
"""The speed of a machine may change by this factor between moments. A probe whose fastest sample is slower was held
up."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a workload: the probe, the needed part of its work, its bytes, and whether they are cold."""

    roof: FastestProbe
    need: int
    nbytes: int
    cold: bool

    @property
    def work(self) -> int:
        """Work of one call of the probe."""
        return self.roof.ceiling.work(self.nbytes)

    @property
    def scale(self) -> float:
        """The needed work divided by the probe's."""
        return self.need / self.work

    def outrun(self, found: Alternation) -> bool:
        """Whether the kernel was faster than the fastest sample of the probe, by more than noise."""
        return median(found.a_ns) < (1 - TELLING) * self.scale * min(found.b_ns)


def limit_of(device: Device, traffic: Traffic, footprint: int, field: Field, threads: int, *, cold: bool) -> Limit:
    """The ceiling with the longest time for this traffic. `footprint`: the bytes that a call touches."""
    found, limits = survey(device), []
    for name, need in {"read": traffic.read, "write": traffic.written, "compute": traffic.operations}.items():
        if need:
            moves = found.unit(name) == BYTES
            nbytes = footprint if moves else compute_bytes(device, threads)
            roof = found.roof(name, field, nbytes, threads=threads, cold=cold and moves)
            limits.append(Limit(roof, need, nbytes, cold and moves))
    return max(limits, key=lambda limit: limit.need / limit.roof.rate)


def compared(
    found: Alternation,
    limit: Limit,
    timed: Timed,
    *,
    device: Device,
    field: Field,
    threads: int,
    footprint: int,
    rotation: int,
    wanted: Rotation,
    temperature: str,
    faults: list[Complaint],
    remarks: list[str],
) -> Measurement:
    """The figure from samples of a kernel and of the probe that limits it, interleaved. Adds faults and remarks.

    `rotation`: bytes that calls touch before the same arrays are used again; `wanted`: those that would be cold.
    """
    fraction, name = found.ratio(limit.scale), limit.roof.ceiling.name
    if fraction.pairs < LEAST_SAMPLES:
        remarks.append(f"{temperature}: calls are so long that the number of pairs of samples is only {fraction.pairs}")
    lost = limit.outrun(found)
    if lost:
        took = median(found.a_ns)
        most = survey(device).most(name, field, limit.nbytes, threads=threads, cold=limit.cold)
        floor = limit.need * 1e9 / most
        if took < (1 - TELLING) * floor:
            why = (
                f"{took:.0f} ns a call is below the physical floor of {floor:.0f} ns (the fastest {name} probe): "
                "the kernel cannot have done all of its work"
            )
            faults.append(Complaint(Guard.FLOOR, f"{temperature}: {why}"))
    lost = lost or fraction.low > 1 + TELLING
    # Load during the probe must not make a kernel look good.
    loaded = limit.work * 1e9 / min(found.b_ns) * _LOADED < limit.roof.rate
    if loaded and not lost:
        remarks.append(
            f"{temperature}: the {name} probe was never half as fast as in the machine's survey: something "
            "loads the machine while it runs. How close the kernel comes to the ceiling is not known"
        )
    elif lost:
        remarks.append(
            f"{temperature}: the {name} probe lost, at {100 * fraction.median:.0f} %: other processes held it up, "
            "or it takes longer to start. How close the kernel comes to the ceiling is not known"
        )
    if temperature == "cold" and wanted.nbytes < wanted.wanted:
        remarks.append(f"cold cycles through {wanted.nbytes} bytes of the {wanted.wanted} wanted")
    return Measurement(
        timing=timing(found, timed),
        against=CeilingComparison(
            ceiling=name,
            unit=limit.roof.ceiling.unit,
            rate=limit.work * 1e9 / median(found.b_ns),
            work=limit.need,
            fraction=fraction,
            probe_ns=found.b_ns,
            probe_work=limit.work,
            lost=lost or loaded,
        ),
        footprint=footprint,
        rotation=rotation,
    )


def timing(found: Alternation, timed: Timed) -> Timing:
    """All samples of the first side, and the figures that follow from them."""
    low, high = np.exp(interval(np.log(found.a_ns)))
    q1, middle, q3 = np.quantile(found.a_ns, (0.25, 0.5, 0.75))
    return Timing(
        samples_ns=found.a_ns,
        calls_per_sample=timed.calls,
        median_ns=float(middle),
        q1_ns=float(q1),
        q3_ns=float(q3),
        low_ns=min(float(low), float(middle)),
        high_ns=max(float(high), float(middle)),
        stopped=found.stopped,
        clock=timed.clock.name,
        buffers=len(timed.launches),
    )
