"""Placement of packed weights on a machine with several NUMA nodes, and threads that stay on one node.

The pool gives the threads of a node consecutive shares, in the order of node numbers (cython_ext/src/pool/cores.c), so
weights can be local to the threads that read them:

- "first-touch": each node has the part of the bytes with which its threads begin, in proportion to its physical cores.
  A thread on the node's cores writes that part first, which places it. This needs no system call that containers
  forbid.
- "interleave": pages distributed in rotation over all nodes. For calls with fewer threads than cores, or with varying
  thread counts: every node's memory contributes bandwidth, on whichever node the reader runs.
- a node's number: all pages on that node. `PackedWeights.replicas` makes a copy for each node, for a service that runs
  separate calls on each node (`on_node`). Within one call, copies gain nothing over "first-touch", since a thread
  reads only its own share.

Afterwards the placement of the pages is checked with the system. On a machine with one node nothing is copied.
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
from tritmark.kernels.native import extensions

_LOG = logging.getLogger(__name__)

Placement = Literal["first-touch", "interleave"] | int
""""first-touch", "interleave" or a node's number: see the module."""

_HUGE_PAGES = 16
"""The fewest huge pages of a node's part: a page shared by the threads of two nodes is then at most 1/16 of what either
reads. Smaller weights use small pages, which the TLBs cover."""

_WHY = {
    errno.ENOSYS: ("this kernel has no system calls for NUMA", "use a kernel with CONFIG_NUMA, or no placement"),
    errno.EPERM: (
        "this process may not place memory or query its place: a container's seccomp filter forbids the system calls",
        "use 'first-touch', which needs none, or run the container with --cap-add SYS_NICE",
    ),
    errno.ENOMEM: ("the system has no memory left for it", "use smaller weights, or another node"),
}


def placed(values: npt.NDArray[Any], placement: Placement, there: Topology | None = None) -> npt.NDArray[np.uint8]:
    """A copy of the bytes of `values`, uint8 (nbytes,), in its own pages with that placement. On a machine with one
    node, returns the bytes themselves. `values` is C-contiguous; `there` is by default this machine.

    Raises InvalidArgumentError for another placement and for a node without memory for this process, PlacementError if
    the system refuses, or places pages elsewhere because a node is full.
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
    # The node of an interleaved page depends on its address; with two pages for each node, every node has one.
    _inside(pages(made), nodes, data.nbytes >= 2 * len(nodes) * HUGE)
    return made


def checked(op: str, placement: Placement, there: Topology) -> None:
    """Raises InvalidArgumentError if that machine has no such placement."""
    known = placement in there.storing if _is_node(placement) else placement in {"first-touch", "interleave"}
    if not known:
        nodes = ", ".join(map(str, there.storing))
        legal = "'first-touch', 'interleave'" + (f", or a node that has memory for this process: {nodes}" * bool(nodes))
        raise InvalidArgumentError(op=op, argument="placement", found=repr(placement), legal=legal)


def pages(array: npt.NDArray[Any]) -> dict[int, int]:
    """The number of pages of a C-contiguous array on each node. Untouched pages are on no node. Linux 6.1 also omits
    pages that its NUMA balancing has marked to detect their next reader. Raises PlacementError if the system does not
    report the nodes."""
    try:
        found: dict[int, int] = extensions.native("numa").pages(raw(array))[0]
    except OSError as error:
        raise _refused(error) from None
    return found


def _is_node(placement: object) -> bool:
    return isinstance(placement, int) and not isinstance(placement, bool)


def _huge(nbytes: int, nodes: int) -> bool:
    """Whether a copy for that many nodes uses huge pages; HUGE holds for machines with the smallest page size."""
    return nbytes >= _HUGE_PAGES * HUGE * nodes and mmap.PAGESIZE == 1 << 12


def _parts(there: Topology, nbytes: int, page: int) -> list[tuple[int, int, int]]:
    """(node, begin, end) in bytes for each node with cores: the shares of the pool (tm_cores_share), rounded to
    pages."""
    cores, found, before, begin = there.physical, [], 0, 0
    for node, count in cores.items():
        before += count
        end = round(nbytes * before / sum(cores.values()) / page) * page
        end = nbytes if before == sum(cores.values()) else min(nbytes, end)
        found.append((node, begin, end))
        begin = end
    return found


def _mapped(nbytes: int, huge: bool) -> npt.NDArray[np.uint8]:
    """Untouched memory, aligned to a huge page."""
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
                made[begin : end : mmap.PAGESIZE].max()  # see `pages`: a read from its own node does not move a page
            found = pages(made[begin:end])
        except PlacementError as error:
            if error.number not in {errno.EPERM, errno.ENOSYS}:
                raise
            _LOG.warning("first-touch: the placement of the pages could not be checked: %s", error.found)
            return
        _inside(found, (home,))
        hidden = -(-(end - begin) // mmap.PAGESIZE) - sum(found.values())
        if hidden:
            _LOG.warning("first-touch: the system does not report the node of %d pages for node %d", hidden, home)


def _inside(found: dict[int, int], nodes: tuple[int, ...], every: bool = False) -> None:
    """Raises PlacementError if pages are on other nodes, or, if `every`, if a node has none."""
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
