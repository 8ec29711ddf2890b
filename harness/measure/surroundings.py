"""The machine's state while a Run is timed: other processes, the hypervisor, clock frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from tritmark.harness.machine.cpu import affinity, clocks
from tritmark.harness.machine.nvml import health
from tritmark.harness.measure.system_load import SHORTEST_S, core_times
from tritmark.harness.record import MachineLoad


@dataclass(frozen=True, slots=True)
class _Reading:
    """Counters and clocks at one moment."""

    at: float
    own: float
    """CPU seconds of this process and its descendants."""
    busy: float
    stolen: float
    clocks: tuple[int, ...]
    device_clock: int | None


class MachineWatch:
    """Watches the machine from its creation on. `gpu`: UUID of the GPU that the kernel runs on; "" on the host."""

    def __init__(self, gpu: str = "") -> None:
        self._gpu = gpu
        self._begin = _read(gpu)

    def load(self) -> MachineLoad:
        """The load of other processes since then, without this process and its descendants."""
        begin, end = self._begin, _read(self._gpu)
        seconds = end.at - begin.at
        taken: dict[str, float] = {}
        if seconds >= SHORTEST_S:
            stolen = max(0.0, end.stolen - begin.stolen)
            others = max(stolen, end.busy - begin.busy - (end.own - begin.own))
            taken = {"others": others / seconds, "stolen": stolen / seconds}
        each = [*begin.clocks, *end.clocks]
        device = [clock for clock in (begin.device_clock, end.device_clock) if clock is not None]
        return MachineLoad(
            seconds=seconds,
            cores=len(affinity()),
            clock_low_hz=min(each, default=None),
            clock_high_hz=max(each, default=None),
            device_clock_low_hz=min(device, default=None),
            device_clock_high_hz=max(device, default=None),
            **taken,
        )


def _read(gpu: str) -> _Reading:
    busy, stolen = core_times()
    clock = health(gpu).clock_hz if gpu else None
    return _Reading(perf_counter(), _own(), busy, stolen, tuple(clocks()), clock)


def _own() -> float:
    """CPU seconds of this process and its descendants. The parent of an ended process counts its time."""
    import psutil

    here = psutil.Process()
    total = 0.0
    for each in (here, *here.children(recursive=True)):
        try:
            total += sum(each.cpu_times()[:4])  # user, system, and both of children that were awaited
        except psutil.NoSuchProcess:
            continue
    return total
