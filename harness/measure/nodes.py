"""A host of several NUMA nodes: how fast each node's cores read each node's memory, and what lay where, and was moved,
while something was measured. Of one node there is nothing to find."""

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
    """The rate of reading for each node that has cores for this process and each that has memory for it, on all of the
    node's physical cores; none where it is one node, and for devices other than the CPU.

    The fastest of the "read" probes, by the median of its samples, over as many bytes as are cold again when they come
    round, or an eighth of the node's memory if that is less. Nodes are left out whose memory the system does not give,
    and those with memory alone where a container forbids to ask for it.
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
    """Memory of that node, touched first by a thread on its cores; where it has none, by the device. None where it lies
    elsewhere."""
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
    """Nanoseconds of a call that takes milliseconds, the median; the first one wakes the threads."""
    run()
    samples = []
    for _ in range(_SAMPLES):
        begun = perf_counter_ns()
        run()
        samples.append(perf_counter_ns() - begun)
    return median(samples)


class NodeWatch:
    """Counts, from when it is made, the pages and threads that are moved."""

    def __init__(self) -> None:
        self._pages, self._threads = numa.migrated(), numa.moves()

    def seen(self, addresses: Iterable[int]) -> NodeUse:
        """What was moved so far, and where what lies at those addresses is now."""
        from tritmark.harness.record import NodeUse

        pages, threads = numa.migrated(), numa.moves()
        # Pages moved to the node that uses them are among those moved for any reason, where both are counted.
        name = next((each for each in reversed(numa.MIGRATED) if each in pages and each in self._pages), None)
        return NodeUse(
            nbytes=numa.lying(addresses),
            pages_moved=None if name is None else pages[name] - self._pages[name],
            threads_moved=None if threads is None or self._threads is None else max(0, threads - self._threads),
        )
