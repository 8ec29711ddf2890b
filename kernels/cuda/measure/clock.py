"""The GPU's clock: events around launches that are queued first, so that the time includes neither Python nor the
driver's queue.

A launch through Python takes several microseconds, more than many kernels. So calls shorter than PLAIN_NS are recorded
in a CUDA graph once and replayed; longer calls are launched one by one. In both cases a waiting kernel runs before the
first event until all launches are queued, so the device finds no gap.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from statistics import median
from time import perf_counter_ns
from typing import Any, cast

from tritmark.harness.errors import DeviceError, LaunchError
from tritmark.harness.spec import Launch
from tritmark.kernels.cuda.backend import Stream
from tritmark.kernels.cuda.context import CudaContext, cuda_context, current_gpu
from tritmark.kernels.cuda.driver.graphs import checked, nodes, recorded
from tritmark.kernels.cuda.launch.counted import CountedLaunch

PLAIN_NS = 50_000
"""Longer calls need no graph: separate launches leave about a microsecond between calls."""

MOST_NODES = 1 << 16
"""Limit on the nodes of the graphs that a clock keeps; the least recently replayed one is dropped first."""

LEAST_WAIT_NS = 40_000
MOST_WAIT_NS = 2_000_000
_REMEMBERED = 9


def timeable(index: int) -> CudaContext:
    """The context of GPU `index`, which must be real. Raises DeviceError in the simulator, which has no speed."""
    here = cuda_context(index)
    if here.backend.simulated:
        raise DeviceError("a simulated device has no speed", next_step="unset TRITMARK_CUDA on a machine with a GPU")
    return here


def turn_of(launches: Sequence[Launch], first: int, calls: int) -> list[CountedLaunch]:
    """The launches of a sample in order: its `calls` calls cycle through them from index `first`."""
    if calls < 1 or not launches or any(not isinstance(launch, CountedLaunch) for launch in launches[:1]):
        raise ValueError(f"{calls} calls of {len(launches)} launches; legal: one or more calls and GPU launches")
    return cast(
        "list[CountedLaunch]", [launches[(first + call) % len(launches)] for call in range(min(calls, len(launches)))]
    )


def count(turn: Sequence[CountedLaunch], calls: int, taken_ns: float) -> None:
    """Count in each launch its runs in a sample of `calls`, and its share of the time."""
    rounds, rest = divmod(calls, len(turn))
    for index, launch in enumerate(turn):
        runs = rounds + (index < rest)
        launch.count(runs)
        launch.timed(runs, taken_ns * runs / calls)


class GraphClock:
    """Times launches with events on the GPU that is current when it is made. Counts runs and measured time in each
    launch."""

    def __init__(self) -> None:
        self.name = "CUDA events"
        self._index = current_gpu()
        self.recorded = False
        """Whether the last sample used a graph."""
        self._graphs: OrderedDict[tuple[int, int], Graph] = OrderedDict()
        self._launches: Sequence[Launch] | None = None
        self._call_ns = 0.0
        self._handed_over: deque[int] = deque(maxlen=_REMEMBERED)
        self._gate: Gate | None = None

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        """Run `calls` launches in a row, cycling through `launches` from index `first`. Returns nanoseconds between the
        events around them.

        Raises DeviceError in the simulator, which has no speed, LaunchError if a graph holds other nodes than were
        recorded, and DeviceFaultError if a kernel failed.
        """
        here, turn = timeable(self._index), turn_of(launches, first, calls)
        if launches is not self._launches:
            self._graphs.clear()
            self._launches, self._call_ns = launches, 0.0
        self.recorded = calls > 1 and self._call_ns < PLAIN_NS
        self.name = "CUDA graph, events" if self.recorded else "CUDA events"
        graph = self._graph(here, turn, first % len(launches), calls) if self.recorded else None
        taken = self._between_events(here, turn, calls, graph)
        self._call_ns = taken / calls
        count(turn, calls, taken)
        return round(taken)

    def _between_events(self, here: CudaContext, turn: list[CountedLaunch], calls: int, graph: Graph | None) -> float:
        if self._gate is None:
            self._gate = Gate(here)
        stream, gate = here.backend.stream, self._gate
        # Twice the usual time of queueing. An interruption there makes only this one sample inexact.
        wait = 2 * median(self._handed_over) if self._handed_over else 0
        begun = perf_counter_ns()
        gate.close(min(MOST_WAIT_NS, max(LEAST_WAIT_NS, round(wait))))
        gate.begin.record(stream)
        if graph is not None:
            graph.replay(stream)
        else:
            for call in range(calls):
                turn[call % len(turn)].put(stream)
        gate.end.record(stream)
        self._handed_over.append(perf_counter_ns() - begun)
        stream.synchronize()
        return gate.end.since(gate.begin)

    def _graph(self, here: CudaContext, turn: list[CountedLaunch], first: int, calls: int) -> Graph:
        key = first, calls
        known = self._graphs.get(key)
        if known is None:
            known = self._graphs[key] = Graph(here, [turn[call % len(turn)] for call in range(calls)])
            while len(self._graphs) > 1 and sum(graph.nodes for graph in self._graphs.values()) > MOST_NODES:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        return known


class Gate:
    """A kernel that keeps the stream waiting, and the two events after it."""

    def __init__(self, here: CudaContext) -> None:
        import numpy as np

        from tritmark.kernels.cuda.measure.ceilings import WAIT

        self._number = np.uint64
        self._backend = here.backend
        self._function = here.function(WAIT)
        self.begin, self.end = here.backend.new_event(), here.backend.new_event()

    def close(self, ns: int) -> None:
        """Make the stream wait for `ns` from the moment that it reaches this kernel."""
        arguments = self._backend.arguments(self._function, [self._number(ns)])
        self._backend.enqueue(self._function, (1, 1, 1), (1, 1, 1), arguments, 0, self._backend.stream)


class Graph:
    """Launches that were recorded from a stream in order and can be replayed. Keeps the launched objects alive."""

    def __init__(self, here: CudaContext, launches: Sequence[CountedLaunch]) -> None:
        from cuda.bindings import driver

        self._driver = driver
        self._launches = tuple(launches)
        self._kernels = sum(launch.kernels for launch in launches)
        self.nodes = self._kernels + sum(launch.others for launch in launches)
        """Number of its nodes."""

        def put(stream: Stream) -> None:
            for launch in launches:
                launch.put(stream)

        graph = recorded(here.backend.stream, put)
        try:
            self._verify(graph)
            (self._ready,) = checked(driver.cuGraphInstantiate(graph, 0))
        finally:
            driver.cuGraphDestroy(graph)
        weakref.finalize(self, driver.cuGraphExecDestroy, self._ready).atexit = False
        checked(driver.cuGraphUpload(self._ready, driver.CUstream(here.backend.stream.handle)))

    def replay(self, stream: Stream) -> None:
        """Put all launches into a stream."""
        checked(self._driver.cuGraphLaunch(self._ready, self._driver.CUstream(stream.handle)))

    def _verify(self, graph: Any) -> None:
        """Raise LaunchError unless the graph holds exactly the nodes of the launches."""
        kernels, others = nodes(graph)
        if (len(kernels), len(kernels) + others) != (self._kernels, self.nodes):
            raise LaunchError(
                f"a CUDA graph of {self.nodes} launches holds {len(kernels) + others} nodes, {len(kernels)} of them "
                "kernels",
                next_step="make the launcher put only its launches into the stream",
            )
