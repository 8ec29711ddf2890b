"""Hosts with several NUMA nodes: the read bandwidth from each node's cores to each node's memory, and the placement and
migration of memory during a measurement. With one node, nothing is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import PlacementError
from tritmark.harness.machine import numa
from tritmark.harness.measure.buffers import ALIGNMENT, HOST, rotation
from tritmark.harness.spec import Device

if TYPE_CHECKING:
    from tritmark.harness.record import NodeBandwidth, NodeUse

_SHARE = 8
_SAMPLES = 9


def measure_nodes(device: Device, there: numa.Topology | None = None) -> list[NodeBandwidth]:
    """The read rate for each node with cores and each node with memory that this process may use, on all physical cores
    of the node. [] on one node, and for devices except the CPU.

    It is the median rate of the fastest "read" probe, over a cold rotation or 1/8 of the node's memory, whichever is
    less. A node is left out if the system does not place memory there, or if it has only memory and a container forbids
    to request it.
    """
    from tritmark.harness.record import HOST as CPU
    from tritmark.harness.record import NodeBandwidth

    there = numa.topology() if there is None else there
    if device.type != CPU or not there.several:
        return []
    probes = [probe for probe in device.ceilings().values() if probe.name == "read"]
    found = []
    for node in there.nodes:
        if node.number not in there.storing:
            continue
        nbytes = min(rotation(HOST).nbytes, node.memory // _SHARE)
        buffer = _buffer(device, there, node.number, nbytes)
        for cores in there.working if buffer is not None else ():
            threads = there.physical[cores]
            with numa.on_node(cores, there):
                rate = max(probe.work(nbytes) * 1e9 / _ns(probe.bind(buffer, threads).run) for probe in probes)
            found.append(NodeBandwidth(cores=cores, memory=node.number, threads=threads, nbytes=nbytes, rate=rate))
    return found


def _buffer(device: Device, there: numa.Topology, node: int, nbytes: int) -> npt.NDArray[np.uint8] | None:
    """Memory of that node, first touched by a thread on its cores; if it has no cores, placed by the device. None if
    the memory is on another node."""
    if node in there.working:
        with numa.on_node(node, there):
            whole = np.empty(nbytes + ALIGNMENT, np.uint8)
            start = -whole.ctypes.data % ALIGNMENT
            found: npt.NDArray[np.uint8] = whole[start : start + nbytes]
            found[...] = 1
        return found if numa.lying([found.ctypes.data]).keys() <= {node} else None
    try:
        return None if device.placed is None else device.placed(np.ones(nbytes, np.uint8), node)
    except PlacementError:
        return None


def _ns(run: Callable[[], None]) -> float:
    """Median nanoseconds of a call that takes milliseconds. The first call wakes the threads and is not timed."""
    run()
    samples = []
    for _ in range(_SAMPLES):
        begun = perf_counter_ns()
        run()
        samples.append(perf_counter_ns() - begun)
    return median(samples)


class NodeWatch:
    """Counts the pages and threads that are moved between nodes, from its creation on."""

    def __init__(self) -> None:
        self._pages, self._threads = numa.migrated(), numa.moves()

    def seen(self, addresses: Iterable[int]) -> NodeUse:
        """The counts so far, and the current nodes of the memory at these addresses."""
        from tritmark.harness.record import NodeUse

        pages, threads = numa.migrated(), numa.moves()
        # If both are counted, the second includes the first.
        name = next((each for each in reversed(numa.MIGRATED) if each in pages and each in self._pages), None)
        return NodeUse(
            nbytes=numa.lying(addresses),
            pages_moved=None if name is None else pages[name] - self._pages[name],
            threads_moved=None if threads is None or self._threads is None else max(0, threads - self._threads),
        )
