"""The GPU's clock: what it records, replays, counts and refuses, on a fake driver and on a real GPU if there is one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import lazy_device
import numpy as np
import pytest

from tritmark.harness.errors import DeviceError, DeviceFaultError, LaunchError
from tritmark.harness.measure.alternate import SHORTEST_NS, Timed, calibrate
from tritmark.harness.measure.scaling import plain
from tritmark.kernels.cuda import device
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import launch as launch_module
from tritmark.kernels.cuda.launch.launch import Call, CudaLaunch
from tritmark.kernels.cuda.measure import clock as clock_module
from tritmark.kernels.cuda.measure.ceilings import NOTHING, WAIT
from tritmark.kernels.cuda.measure.clock import MOST_WAIT_NS, PLAIN_NS, GraphClock
from tritmark.kernels.cuda.measure.plain import PlainClock
from tritmark.kernels.cuda.memory.stats import PerformanceStats

INFO = replace(lazy_device.INFO, name="made up", uuid="GPU-made-up", memory=1 << 30)


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_LAUNCH_FAILED = 719


class Kind(IntEnum):
    CU_GRAPH_NODE_TYPE_KERNEL = 0
    CU_GRAPH_NODE_TYPE_MEMCPY = 1


class Driver:
    """A stream that runs kernels immediately unless it captures; its time advances by their costs."""

    CUresult = Result
    CUgraphNodeType = Kind
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)

    def __init__(self) -> None:
        self.now = 1000.0
        self.ran: list[str] = []
        self.waits: list[int] = []
        self.recording: list[tuple[Kind, str, float]] | None = None
        self.instantiated = 0
        self.alive = 0
        self.replays = 0
        self.intruder = False
        self.broken = False

    def CUstream(self, handle: int) -> int:  # noqa: N802
        return handle

    def give(self, name: str, cost: float) -> None:
        if self.recording is not None:
            self.recording.append((Kind.CU_GRAPH_NODE_TYPE_KERNEL, name, cost))
        else:
            self.ran.append(name)
            self.now += cost

    def cuStreamBeginCapture(self, stream: int, mode: int) -> tuple[Result]:  # noqa: N802
        assert self.recording is None
        assert mode == 2
        self.recording = []
        return (Result.CUDA_SUCCESS,)

    def cuStreamEndCapture(self, stream: int) -> tuple[Result, Any]:  # noqa: N802
        recorded, self.recording = self.recording, None
        assert recorded is not None
        return Result.CUDA_SUCCESS, recorded + [(Kind.CU_GRAPH_NODE_TYPE_MEMCPY, "copy", 1.0)] * self.intruder

    def cuGraphGetNodes(self, graph: list[Any], count: int = 0) -> tuple[Result, list[Any], int]:  # noqa: N802
        return Result.CUDA_SUCCESS, graph[:count], len(graph)

    def cuGraphNodeGetType(self, node: tuple[Kind, str, float]) -> tuple[Result, Kind]:  # noqa: N802
        return Result.CUDA_SUCCESS, node[0]

    def cuGraphInstantiate(self, graph: list[Any], flags: int) -> tuple[Result, list[Any]]:  # noqa: N802
        self.instantiated += 1
        self.alive += 1
        return Result.CUDA_SUCCESS, list(graph)

    def cuGraphDestroy(self, graph: list[Any]) -> tuple[Result]:  # noqa: N802
        return (Result.CUDA_SUCCESS,)

    def cuGraphExecDestroy(self, graph: list[Any]) -> tuple[Result]:  # noqa: N802
        self.alive -= 1
        return (Result.CUDA_SUCCESS,)

    def cuGraphUpload(self, graph: list[Any], stream: int) -> tuple[Result]:  # noqa: N802
        return (Result.CUDA_SUCCESS,)

    def cuGraphLaunch(self, graph: list[Any], stream: int) -> tuple[Result]:  # noqa: N802
        if self.broken:
            return (Result.CUDA_ERROR_LAUNCH_FAILED,)
        self.replays += 1
        for _, name, cost in graph:
            self.give(name, cost)
        return (Result.CUDA_SUCCESS,)


class Event:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.at = 0.0

    def record(self, stream: Any) -> None:
        self.at = self._driver.now

    def since(self, earlier: Event) -> float:
        return self.at - earlier.at


class Backend:
    simulated = False
    info = INFO

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.stream: Any = SimpleNamespace(handle=5, synchronize=lambda: None)
        self.costs: dict[str, float] = {}

    def arguments(self, function: Any, args: Sequence[Any]) -> Any:
        return tuple(args)

    def enqueue(self, function: Any, grid: Any, block: Any, arguments: Any, shared: int, stream: Any) -> None:
        if function.name == WAIT.name:
            self.driver.waits.append(int(arguments[0]))
        else:
            self.driver.give(function.name, self.costs[function.name])

    def new_event(self) -> Event:
        return Event(self.driver)


class FakeRoom:
    def __init__(self) -> None:
        self.driver = Driver()
        self.backend = Backend(self.driver)
        self.stats = PerformanceStats()

    def function(self, kernel: Kernel) -> Any:
        return SimpleNamespace(
            name=kernel.name,
            most_threads=1024,
            shared=0,
            handle=7,
            code_hash="c" * 64,
            blocks_per_sm=lambda threads, shared: 8,
        )

    def launch(self, *costs: float) -> CudaLaunch:
        """A launch with one kernel per cost."""
        name = f"k{len(self.backend.costs)}"
        steps = []
        for index, cost in enumerate(costs):
            self.backend.costs[f"{name}.{index}"] = cost
            kernel = Kernel(file="cuda/ceilings.cu", name=f"{name}.{index}", threads=32, registers=16)
            steps.append(Step(kernel=kernel, grid=(1, 1, 1), block=(32, 1, 1), args=(np.uint64(1),)))
        unused: Any = None
        call = Call(inputs={}, outputs={}, axes={}, info=INFO, bad=unused, workspace=None, function=self.function)
        return CudaLaunch(f"cuda/op/none/int8/{name}", call, tuple(steps))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeRoom:
    made = FakeRoom()
    bindings = ModuleType("cuda.bindings")
    bindings.__dict__["driver"] = made.driver
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setattr(launch_module, "cuda_context", lambda: made)
    monkeypatch.setattr(clock_module, "cuda_context", lambda index: made)
    return made


def test_calls_are_recorded_once_and_replayed_in_turn(gpu: FakeRoom) -> None:
    launches, clock = [gpu.launch(100.0), gpu.launch(200.0, 10.0), gpu.launch(300.0)], GraphClock()
    for _ in range(3):
        assert clock.sample(launches, 1, 5) == 210 + 300 + 100 + 210 + 300
    assert (clock.name, clock.recorded) == ("CUDA graph, events", True)
    assert gpu.driver.ran == ["k1.0", "k1.1", "k3.0", "k0.0", "k1.0", "k1.1", "k3.0"] * 3
    assert (gpu.driver.instantiated, gpu.driver.replays) == (1, 3)
    assert [launch.runs for launch in launches] == [3, 6, 6]
    clock.sample(launches, 0, 5)
    assert gpu.driver.instantiated == 2


def test_what_the_clock_replays_is_in_the_launches_proof(gpu: FakeRoom) -> None:
    launches, clock = [gpu.launch(100.0, 50.0), gpu.launch(300.0)], GraphClock()
    taken = clock.sample(launches, 0, 3)
    first, second = (launch.proof for launch in launches)
    assert (first.launches, second.launches) == (4, 1)
    assert (first.timed_runs, second.timed_runs) == (2, 1)
    # Only the sum was measured, so each run gets an equal share.
    assert first.device_ns + second.device_ns == pytest.approx(taken)
    assert first.device_ns == pytest.approx(2 * second.device_ns)
    assert gpu.stats.launches == 5


def test_long_calls_need_no_graph(gpu: FakeRoom) -> None:
    launches, clock = [gpu.launch(2.0 * PLAIN_NS)], GraphClock()
    assert clock.sample(launches, 0, 1) == 2 * PLAIN_NS
    assert clock.sample(launches, 0, 2) == 4 * PLAIN_NS
    assert (clock.name, clock.recorded) == ("CUDA events", False)
    assert gpu.driver.instantiated == 0
    assert launches[0].runs == launches[0].proof.timed_runs == 3


def test_a_single_call_is_not_recorded(gpu: FakeRoom) -> None:
    clock = GraphClock()
    clock.sample([gpu.launch(10.0)], 0, 1)
    assert (clock.name, gpu.driver.instantiated) == ("CUDA events", 0)


@pytest.mark.parametrize("sets", [1, 3, 300, 1000])
def test_calibrated_samples_are_as_long_as_they_should_be_and_few_are_recorded(gpu: FakeRoom, sets: int) -> None:
    timed = Timed([gpu.launch(1500.0) for _ in range(sets)], GraphClock())
    calibrate(timed)
    before = gpu.driver.instantiated
    for _ in range(3 * sets):
        assert SHORTEST_NS <= timed.sample() * timed.calls <= 350_000
    assert gpu.driver.instantiated - before <= max(1, sets // timed.calls)
    assert sum(launch.runs for launch in timed.launches) <= timed.made


def test_graphs_are_kept_in_bounds_and_go_with_the_clock(gpu: FakeRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_module, "MOST_NODES", 20)
    launches, clock = [gpu.launch(1.0) for _ in range(8)], GraphClock()
    for first in range(8):
        clock.sample(launches, first, 4)
    assert (gpu.driver.instantiated, gpu.driver.alive) == (8, 5)
    clock.sample(launches, 7, 4)
    assert gpu.driver.instantiated == 8
    clock.sample(launches, 0, 4)
    assert gpu.driver.instantiated == 9
    clock.sample(list(launches), 0, 4)
    assert gpu.driver.alive == 1
    del clock
    assert gpu.driver.alive == 0


def test_a_graph_that_holds_something_else_is_refused(gpu: FakeRoom) -> None:
    gpu.driver.intruder = True
    launch = gpu.launch(1.0)
    with pytest.raises(LaunchError, match="2 launches holds 3 nodes, 2 of them kernels"):
        GraphClock().sample([launch], 0, 2)
    assert launch.runs == 0


def test_a_launch_that_is_refused_ends_the_recording(gpu: FakeRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = gpu.launch(1.0)
    monkeypatch.delitem(gpu.backend.costs, "k0.0")
    with pytest.raises(KeyError):
        GraphClock().sample([launch], 0, 2)
    assert gpu.driver.recording is None


def test_a_driver_that_refuses_is_a_typed_error(gpu: FakeRoom) -> None:
    gpu.driver.broken = True
    with pytest.raises(DeviceFaultError, match="CUDA_ERROR_LAUNCH_FAILED"):
        GraphClock().sample([gpu.launch(1.0)], 0, 2)


def test_the_stream_waits_until_everything_was_handed_over(gpu: FakeRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def later() -> int:
        now[0] += 300_000
        return now[0]

    monkeypatch.setattr(clock_module, "perf_counter_ns", later)
    clock, launches = GraphClock(), [gpu.launch(1.0)]
    for _ in range(3):
        clock.sample(launches, 0, 2)
    assert gpu.driver.waits[1:] == [600_000, 600_000]
    monkeypatch.setattr(clock_module, "perf_counter_ns", lambda: now.__setitem__(0, now[0] + 10**9) or now[0])
    for _ in range(12):
        clock.sample(launches, 0, 2)
    assert gpu.driver.waits[-1] == MOST_WAIT_NS


def test_the_clock_refuses_what_it_cannot_time(gpu: FakeRoom) -> None:
    other: Any = SimpleNamespace(pointer=1)
    for launches, calls in (([], 1), ([gpu.launch(1.0)], 0), ([other], 1)):
        with pytest.raises(ValueError, match="legal"):
            GraphClock().sample(launches, 0, calls)


def test_a_simulated_device_has_no_clock(gpu: FakeRoom) -> None:
    gpu.backend.simulated = True
    with pytest.raises(DeviceError, match="no speed"):
        GraphClock().sample([gpu.launch(1.0)], 0, 1)


def test_plain_launches_are_not_recorded_and_nothing_holds_the_device_back(gpu: FakeRoom) -> None:
    launches, clock = [gpu.launch(100.0), gpu.launch(200.0, 10.0), gpu.launch(300.0)], PlainClock()
    assert clock.sample(launches, 1, 5) == 210 + 300 + 100 + 210 + 300
    assert gpu.driver.ran == ["k1.0", "k1.1", "k3.0", "k0.0", "k1.0", "k1.1", "k3.0"]
    assert (gpu.driver.instantiated, gpu.driver.waits) == (0, [])
    assert [launch.runs for launch in launches] == [1, 2, 2]
    assert [launch.proof.timed_runs for launch in launches] == [1, 2, 2]
    gpu.backend.simulated = True
    with pytest.raises(DeviceError, match="no speed"):
        clock.sample(launches, 0, 1)


@pytest.mark.skipif(device.missing() is not None or device.simulated(), reason=f"no real GPU: {device.missing()}")  # type: ignore[attr-defined]
def test_launched_one_by_one_an_empty_kernel_takes_longer_on_a_real_gpu() -> None:
    from tritmark.kernels.cuda.context import cuda_context
    from tritmark.kernels.cuda.measure.ceilings import ceilings

    probe: Any = ceilings()["launch"].bind(cuda_context().array((64,), np.uint8), 1)
    ratio = plain(probe, device.DEVICE, np.random.default_rng(0))
    assert ratio is not None
    assert ratio.low > 1, ratio
    assert probe.runs == probe.proof.launches == probe.proof.timed_runs


@pytest.mark.skipif(device.missing() is not None or device.simulated(), reason=f"no real GPU: {device.missing()}")  # type: ignore[attr-defined]
def test_an_empty_kernel_on_a_real_gpu() -> None:
    from tritmark.kernels.cuda.context import cuda_context
    from tritmark.kernels.cuda.measure.ceilings import Probe, ceilings

    probe: Any = ceilings()["launch"].bind(cuda_context().array((64,), np.uint8), 1)
    assert isinstance(probe, Probe)
    timed = Timed([probe], GraphClock())
    call = calibrate(timed)
    assert timed.clock.name == "CUDA graph, events"
    assert 100 < call < 20_000
    assert probe.runs == timed.made == probe.proof.launches == probe.proof.timed_runs
    assert probe.proof.functions == (NOTHING.name,)
