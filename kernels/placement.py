"""Where packed weights lie on a machine of several NUMA nodes, and a thread that stays on one.

The pool gives the threads of a node shares that follow each other, in the order of the nodes' numbers
(cython_ext/src/pool/cores.c), so weights can lie where the threads are that read them:

- "first-touch": each node has the part of the bytes that its threads begin with, in proportion to its physical cores. A
  thread on the node's cores writes that part first, which is what decides. It needs no system call that a container
  forbids.
- "interleave": pages in turn over all nodes. For calls of fewer threads than there are cores, or of several sizes:
  each node's memory gives its part of the bandwidth, whoever reads.
- a node's number: all of it there. `PackedWeights.replicas` makes a copy for each node, for a service with calls on
  each node of their own (`on_node`): within one call a copy on each node gains nothing over "first-touch", since a
  thread reads its own share alone.

Afterwards the system is asked where the pages lie. Where it is one node, the weights stay where they are.
"""

from __future__ import annotations

import errno
import logging
import mmap
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError, PlacementError
from tritmark.harness.machine.numa import Topology, on_node, topology
from tritmark.harness.measure.buffers import HUGE, raw
from tritmark.kernels import extensions

_LOG = logging.getLogger(__name__)

Placement = Literal["first-touch", "interleave"] | int
"""See the module."""

_HUGE_PAGES = 16
"""Huge pages that a node's part has at least where it is made of them: a page that two nodes' threads share is then no
more than a sixteenth of what either reads. Smaller weights lie in small pages, which the TLBs reach."""

_WHY = {
    errno.ENOSYS: ("this kernel has no system calls for NUMA", "use a kernel with CONFIG_NUMA, or no placement"),
    errno.EPERM: (
        "this process may not place memory or look it up: containers forbid the system calls by a seccomp filter",
        "use 'first-touch', which needs none, or run the container with --cap-add SYS_NICE",
    ),
    errno.ENOMEM: ("the system has no memory left for it", "use smaller weights, or another node"),
}


def placed(values: npt.NDArray[Any], placement: Placement, there: Topology | None = None) -> npt.NDArray[np.uint8]:
    """A copy of `values`' bytes, uint8 (nbytes,), in pages of its own that lie as told; the bytes themselves where
    there is one node. `values` is C-contiguous; `there` is this machine unless told.

    Raises InvalidArgumentError for another placement and for a node that has no memory for this process, PlacementError
    where the system refuses, or puts pages elsewhere because a node is full.
    """
    there = topology() if there is None else there
    checked("placed", placement, there)
    data = raw(values)
    if not there.several or not data.nbytes:
        return data
    if placement == "first-touch":
        huge = _huge(data.nbytes, len(there.working))
        parts = _parts(there, data.nbytes, HUGE if huge else mmap.PAGESIZE)
        made = _mapped(data.nbytes, huge)
        _write(made, data, parts, there)
        _verify(made, {node: (begin, end) for node, begin, end in parts}, there)
        return made
    nodes = there.storing if placement == "interleave" else (int(placement),)
    made = _mapped(data.nbytes, _huge(data.nbytes, len(nodes)))
    try:
        extensions.native("numa").bind(made, nodes)
    except OSError as error:
        raise _refused(error) from None
    made[...] = data
    # Which node an interleaved page is on hangs on its place, so of two for each node every node has one.
    _inside(pages(made), nodes, data.nbytes >= 2 * len(nodes) * HUGE)
    return made


def checked(op: str, placement: Placement, there: Topology) -> None:
    """Raises InvalidArgumentError where there is no such placement on that machine."""
    known = placement in there.storing if _is_node(placement) else placement in {"first-touch", "interleave"}
    if not known:
        nodes = ", ".join(map(str, there.storing))
        legal = "'first-touch', 'interleave'" + (f", or a node that has memory for this process: {nodes}" * bool(nodes))
        raise InvalidArgumentError(op=op, argument="placement", found=repr(placement), legal=legal)


def pages(array: npt.NDArray[Any]) -> dict[int, int]:
    """Pages that hold some of a C-contiguous array by node; those that were never touched lie nowhere. Linux 6.1 leaves
    out, too, those that its NUMA balancing has marked to see who reads them next. Raises PlacementError where the
    system does not tell."""
    try:
        found: dict[int, int] = extensions.native("numa").pages(raw(array))[0]
    except OSError as error:
        raise _refused(error) from None
    return found


def _is_node(placement: object) -> bool:
    return isinstance(placement, int) and not isinstance(placement, bool)


def _huge(nbytes: int, nodes: int) -> bool:
    """Whether a copy for so many nodes lies in huge pages, which HUGE tells of machines with the smallest pages."""
    return nbytes >= _HUGE_PAGES * HUGE * nodes and mmap.PAGESIZE == 1 << 12


def _parts(there: Topology, nbytes: int, page: int) -> list[tuple[int, int, int]]:
    """(node, begin, end) in bytes for each node with cores: as the pool shares items out (tm_cores_share), at the
    pages' ends."""
    cores, found, before, begin = there.physical, [], 0, 0
    for node, count in cores.items():
        before += count
        end = round(nbytes * before / sum(cores.values()) / page) * page
        end = nbytes if before == sum(cores.values()) else min(nbytes, end)
        found.append((node, begin, end))
        begin = end
    return found


def _mapped(nbytes: int, huge: bool) -> npt.NDArray[np.uint8]:
    """Memory that nobody has touched, at the beginning of a huge page."""
    mapping = mmap.mmap(-1, nbytes + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # a kernel without transparent huge pages
        mapping.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    whole = np.frombuffer(mapping, np.uint8)
    start = -whole.ctypes.data % HUGE
    return whole[start : start + nbytes]


def _write(
    made: npt.NDArray[np.uint8], data: npt.NDArray[np.uint8], parts: list[tuple[int, int, int]], there: Topology
) -> None:
    def write(part: tuple[int, int, int]) -> None:
        node, begin, end = part
        with on_node(node, there):
            made[begin:end] = data[begin:end]

    with ThreadPoolExecutor(len(parts)) as threads:
        for _ in threads.map(write, parts):
            pass


def _verify(made: npt.NDArray[np.uint8], parts: dict[int, tuple[int, int]], there: Topology) -> None:
    for node, (begin, end) in parts.items():
        home = there.home(node)
        if begin == end or home is None:
            continue
        try:
            with on_node(node, there):
                made[begin : end : mmap.PAGESIZE].max()  # see `pages`: read from its own node a page is not moved
            found = pages(made[begin:end])
        except PlacementError as error:
            if error.number not in {errno.EPERM, errno.ENOSYS}:
                raise
            _LOG.warning("first-touch: nobody could look where the pages lie: %s", error.found)
            return
        _inside(found, (home,))
        hidden = -(-(end - begin) // mmap.PAGESIZE) - sum(found.values())
        if hidden:
            _LOG.warning("first-touch: of %d pages for node %d the system does not tell where they lie", hidden, home)


def _inside(found: dict[int, int], nodes: tuple[int, ...], every: bool = False) -> None:
    """Raises PlacementError where pages lie on other nodes, or, where `every` has to have some, on fewer."""
    lie = ", ".join(f"{count} on node {node}" for node, count in found.items())
    if not found.keys() <= set(nodes) or (every and len(found) < len(nodes)):
        raise PlacementError(
            f"{sum(found.values())} pages should lie on {', '.join(f'node {node}' for node in nodes)}: {lie}",
            next_step="free memory on the nodes (numastat -m), and run without a memory policy of numactl",
        )


def _refused(error: OSError) -> PlacementError:
    number = error.errno or 0
    found, step = _WHY.get(number, (f"the system refuses: {error.strerror}", "use 'first-touch', or no placement"))
    return PlacementError(f"{found} ({errno.errorcode.get(number, number)})", next_step=step, number=number)
