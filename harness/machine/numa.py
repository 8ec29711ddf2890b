"""NUMA nodes as reported by Linux: cores, memory, distances, and the node of a memory address. Imports only what loads
quickly.

A node may have only cores, or only memory (CXL). Node numbers may have gaps, and a node may be offline. A process may
have access to fewer: cores by its affinity, memory by its cpuset.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.machine.cpu import CPUS, affinity
from tritmark.harness.machine.files import SYS, line

NODES = Path("devices/system/node")
PROC = Path("/proc")

NEAREST = 10
"""The distance of a node to itself, by ACPI's table (SLIT)."""

MIGRATED = ("numa_pages_migrated", "pgmigrate_success")
"""Counts of /proc/vmstat: pages that the system moved to the node that uses them, and pages moved for any reason."""


@dataclass(frozen=True, slots=True)
class Node:
    """An online node."""

    number: int
    cores: tuple[int, ...]
    """Online logical cores; () if it has only memory."""
    memory: int
    """Bytes; 0 if it has only cores."""
    distances: tuple[int, ...]
    """Distances to each online node, by node number; NEAREST to itself. Empty if unknown."""


@dataclass(frozen=True)
class Topology:
    """The machine's nodes, and the cores and memory that this process may use."""

    nodes: tuple[Node, ...]
    """By number; empty if the kernel has no NUMA."""
    cores: frozenset[int]
    """Logical cores that the process may run on."""
    allowed: frozenset[int]
    """Nodes whose memory it may use."""
    first: tuple[tuple[int, int], ...] = ()
    """For each logical core, the first logical core of the same physical core."""

    @cached_property
    def working(self) -> dict[int, tuple[int, ...]]:
        """The cores that the process may run on, by node; nodes without any are left out."""
        found = {node.number: tuple(core for core in node.cores if core in self.cores) for node in self.nodes}
        return {number: cores for number, cores in found.items() if cores}

    @cached_property
    def physical(self) -> dict[int, int]:
        """The number of physical cores of `working`, by node."""
        first = dict(self.first)
        return {number: len({first.get(core, core) for core in cores}) for number, cores in self.working.items()}

    @cached_property
    def storing(self) -> tuple[int, ...]:
        """Nodes whose memory the process may use."""
        return tuple(node.number for node in self.nodes if node.memory and node.number in self.allowed)

    @property
    def several(self) -> bool:
        """Whether memory placement matters: the process may use cores or memory of more than one node."""
        return len({*self.working, *self.storing}) > 1

    def node_of(self, core: int) -> int | None:
        """The node of a logical core; None if no node has it."""
        return next((node.number for node in self.nodes if core in node.cores), None)

    def distance(self, origin: int, to: int) -> int | None:
        """Distance between two nodes; None if unknown."""
        numbers = [node.number for node in self.nodes]
        if origin not in numbers or to not in numbers:
            return None
        reported = self.nodes[numbers.index(origin)].distances
        return reported[numbers.index(to)] if len(reported) == len(numbers) else None

    def home(self, node: int) -> int | None:
        """The node with the nearest memory that the process may use: `node` itself if possible; None if there is
        none."""
        return min(self.storing, key=lambda to: (to != node, self.distance(node, to) or 0, to), default=None)


def topology(sys: Path = SYS, proc: Path = PROC, cores: frozenset[int] | None = None) -> Topology:
    """The topology of this machine. `cores`: cores that the process may run on; by default its affinity."""
    online = listed(line(sys / NODES / "online") or "")
    nodes = tuple(_node(sys, number) for number in sorted(online))
    allowed = _allowed(proc)
    return Topology(
        nodes=nodes,
        cores=affinity() if cores is None else cores,
        allowed=frozenset(online if allowed is None else set(online) & set(allowed)),
        first=tuple((core, _first(sys, core)) for node in nodes for core in node.cores),
    )


def listed(text: str) -> tuple[int, ...]:
    """The numbers of a list in Linux's format: "0-2,8" is 0, 1, 2, 8."""
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        if low.isdecimal() and (not high or high.isdecimal()):
            found += range(int(low), int(high or low) + 1)
    return tuple(found)


@contextmanager
def on_node(node: int, there: Topology | None = None) -> Iterator[None]:
    """Keep the calling thread on a node's cores, and so its kernel calls: a call uses only cores that its thread may
    run on. Raises InvalidArgumentError if this process may use no core of the node."""
    there = topology() if there is None else there
    if node not in there.working:
        legal = f"a node with cores for this process: {', '.join(map(str, there.working)) or 'none is known'}"
        raise InvalidArgumentError(op="on_node", argument="node", found=repr(node), legal=legal)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, there.working[node])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def several_nodes(sys: Path = SYS) -> bool:
    """Whether more than one node is online. Reads one small file, so it is cheaper than `topology`."""
    return len(listed(line(sys / NODES / "online") or "")) > 1


def _node(sys: Path, number: int) -> Node:
    folder = sys / NODES / f"node{number}"
    return Node(
        number=number,
        cores=listed(line(folder / "cpulist") or ""),
        memory=_kilobytes(line(folder / "meminfo") or "", "MemTotal") << 10,
        distances=tuple(int(each) for each in (line(folder / "distance") or "").split() if each.isdecimal()),
    )


def _kilobytes(text: str, name: str) -> int:
    """The value of a line such as "Node 0 MemTotal:  16384 kB"; 0 if there is none."""
    for each in text.splitlines():
        reported, _, value = each.partition(":")
        if reported.split()[-1:] == [name]:
            return int(value.split()[0])
    return 0


def _allowed(proc: Path) -> tuple[int, ...] | None:
    """Nodes whose memory the process's cpuset admits; None if the kernel does not report it."""
    for each in (line(proc / "self" / "status") or "").splitlines():
        name, _, value = each.partition(":")
        if name == "Mems_allowed_list":
            return listed(value)
    return None


def _first(sys: Path, core: int) -> int:
    siblings = listed(line(sys / CPUS / f"cpu{core}" / "topology" / "thread_siblings_list") or "")
    return min(siblings, default=core)


def balancing(proc: Path = PROC) -> bool | None:
    """Whether the kernel migrates pages to the threads that use them (kernel.numa_balancing); None if it cannot."""
    reported = line(proc / "sys/kernel/numa_balancing")
    return None if reported is None else reported != "0"


def migrated(proc: Path = PROC) -> dict[str, int]:
    """Pages that the system has moved between nodes since boot, by the names of MIGRATED. Counts that this kernel lacks
    are left out."""
    reported = dict(each.split() for each in (line(proc / "vmstat") or "").splitlines() if len(each.split()) == 2)
    return {name: int(reported[name]) for name in MIGRATED if name in reported}


def moves(proc: Path = PROC) -> int | None:
    """Number of migrations of this process's threads to another core; None if the kernel does not report it
    (CONFIG_SCHED_DEBUG). Ended threads do not count."""
    found = [_moves(task / "sched") for task in (proc / "self" / "task").glob("[0-9]*")]
    reported = [each for each in found if each is not None]
    return sum(reported) if reported else None


def _moves(path: Path) -> int | None:
    for each in (line(path) or "").splitlines():
        name, _, value = each.partition(":")
        if name.strip() == "se.nr_migrations" and value.strip().isdecimal():
            return int(value)
    return None


def policy(proc: Path = PROC) -> str:
    """The memory policy of the process (numactl, set_mempolicy), as the kernel reports it for the stack: "default",
    "bind:0-1", "interleave:0-1" and so on; "" if unknown."""
    for each in (line(proc / "self" / "numa_maps") or "").splitlines():
        words = each.split()
        if "stack" in words:
            return words[1]
    return ""


def lying(addresses: Iterable[int], proc: Path = PROC) -> dict[int, int]:
    """Touched bytes by node, of the mappings that contain the addresses; empty if unknown (/proc/self/numa_maps). It
    needs no system call that a container may forbid. It counts whole mappings, including other arrays in them."""
    mappings: list[tuple[int, dict[int, int]]] = []
    for each in (line(proc / "self" / "numa_maps") or "").splitlines():
        start, *reported = each.split()
        fields = dict(part.split("=", 1) for part in reported if "=" in part)
        page = int(fields.get("kernelpagesize_kB", 4)) << 10
        by_node = {
            int(name[1:]): int(value) * page
            for name, value in fields.items()
            if name[0] == "N" and name[1:].isdecimal()
        }
        mappings.append((int(start, 16), by_node))
    mappings.sort(key=lambda both: both[0])
    starts = [start for start, _ in mappings]
    found: dict[int, int] = {}
    for index in {bisect_right(starts, address) - 1 for address in addresses} - {-1}:
        for node, nbytes in mappings[index][1].items():
            found[node] = found.get(node, 0) + nbytes
    return dict(sorted(found.items()))
