"""The machine's state while a Run is timed: other processes, the hypervisor, clock frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from tritmark.harness.machine.cpu import affinity, clocks
from tritmark.harness.machine.nvml import sensors
from tritmark.harness.measure.sensor_watch import SensorWatch
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
    """Watches the machine from its creation on, and sensors while its `with` lasts. `gpus`: UUIDs of the GPUs that the
    kernel runs on; () on the host."""

    def __init__(self, *gpus: str) -> None:
        self._gpu = gpus[0] if gpus else ""
        self._sensors = SensorWatch(gpus)
        self._begin = _read(self._gpu)

    def __enter__(self) -> MachineWatch:
        self._sensors.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self._sensors.__exit__(*problem)

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
            sensors=self._sensors.summary(),
            **taken,
        )


def _read(gpu: str) -> _Reading:
    busy, stolen = core_times()
    clock = sensors(gpu).clock_low_hz if gpu else None
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
