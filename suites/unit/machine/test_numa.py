"""NUMA nodes as recorded machines tell of them, and what a process may have of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_topologies import NAMES, planted, recorded

from tritmark.harness.machine import numa
from tritmark.harness.machine.cpu import affinity
from tritmark.harness.machine.numa import Topology, topology


def plant(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


SHAPES = {
    "one_node": ({0: 2}, (0,), False),
    "two_sockets": ({0: 2, 1: 2}, (0, 1), True),
    "sub_numa_clusters": ({0: 2, 1: 2, 2: 2, 3: 2}, (0, 1, 2, 3), True),
    "memory_only": ({0: 2, 1: 2}, (0, 1, 2), True),
    "memoryless": ({0: 2, 1: 2}, (0,), True),
    "eight_nodes": (dict.fromkeys(range(8), 1), tuple(range(8)), True),
}
"""Physical cores by node, the nodes with memory, and whether there are several."""


def test_every_recorded_machine_is_looked_at() -> None:
    assert set(NAMES) == set(SHAPES)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_recorded_machine_has(tmp_path: Path, name: str) -> None:
    found = recorded(name, tmp_path)
    assert (found.physical, found.storing, found.several) == SHAPES[name]
    for node in found.nodes:
        assert found.distance(node.number, node.number) == numa.NEAREST
        assert all(found.node_of(core) == node.number for core in node.cores)
    assert numa.several_nodes(tmp_path / "sys") == (len(found.nodes) > 1)


def test_distances_are_those_of_the_firmware(tmp_path: Path) -> None:
    clusters = recorded("sub_numa_clusters", tmp_path)
    assert [clusters.distance(0, to) for to in range(4)] == [10, 12, 21, 21]
    assert clusters.distance(0, 9) is None


def test_memory_is_in_bytes(tmp_path: Path) -> None:
    nodes = recorded("memory_only", tmp_path).nodes
    assert [node.memory for node in nodes] == [223932 << 10, 257384 << 10, 514748 << 10]
    assert nodes[2].cores == ()


@pytest.mark.parametrize(("name", "homes"), [("memoryless", [0, 0]), ("memory_only", [0, 1]), ("two_sockets", [0, 1])])
def test_the_nearest_memory(tmp_path: Path, name: str, homes: list[int]) -> None:
    found = recorded(name, tmp_path)
    assert [found.home(node) for node in found.working] == homes


def test_the_nearest_memory_where_the_cpuset_forbids_a_node_its_own(tmp_path: Path) -> None:
    sys, proc = planted("memory_only", tmp_path)
    plant(proc, "self/status", "Mems_allowed_list:\t1-2\n")
    found = topology(sys, proc, frozenset(range(4)))
    assert found.storing == (1, 2)
    assert found.home(0) == 2, "21 to node 1, 14 to node 2"
    plant(proc, "self/status", "Mems_allowed_list:\t7\n")
    assert topology(sys, proc, frozenset(range(4))).home(0) is None


def test_what_the_process_may_not_have_is_left_out(tmp_path: Path) -> None:
    sys, proc = planted("two_sockets", tmp_path)
    plant(proc, "self/status", "Mems_allowed:\t01\nMems_allowed_list:\t0\n")
    found = topology(sys, proc, frozenset({1, 5, 6, 7}))
    assert found.working == {0: (1,), 1: (5, 6, 7)}
    assert found.storing == (0,)
    assert topology(sys, proc, frozenset({0, 1})).several is False, "cores and memory of one node"
    assert topology(sys, proc, frozenset({4, 5})).several is True, "cores of one node, memory of the other"


def test_numbers_with_gaps_and_nodes_that_are_off(tmp_path: Path) -> None:
    """As POWER numbers them; of node 4 there is a folder left."""
    sys, proc = planted("two_sockets", tmp_path)
    nodes = sys / "devices/system/node"
    (nodes / "node1").rename(nodes / "node8")
    plant(nodes, "online", "0,8\n")
    plant(nodes, "possible", "0-15\n")
    plant(nodes, "node4/cpulist", "\n")
    plant(proc, "self/status", "Mems_allowed_list:\t0-15\n")
    found = topology(sys, proc, frozenset(range(8)))
    assert [node.number for node in found.nodes] == [0, 8]
    assert (found.storing, found.distance(0, 8), found.node_of(5)) == ((0, 8), 21, 8)
    assert found.physical == {0: 2, 8: 2}


def test_a_kernel_without_numa(tmp_path: Path) -> None:
    found = topology(tmp_path, tmp_path, frozenset({0, 1}))
    assert found == Topology(nodes=(), cores=frozenset({0, 1}), allowed=frozenset())
    assert (found.several, found.working, found.storing, numa.several_nodes(tmp_path)) == (False, {}, (), False)


@given(st.sets(st.integers(0, 1023)))
def test_lists_of_the_kernel(numbers: set[int]) -> None:
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    text = ",".join(str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in parts)
    assert numa.listed(text) == tuple(sorted(numbers))


def test_migrations_are_counted(tmp_path: Path) -> None:
    _, proc = planted("two_sockets", tmp_path)
    assert numa.migrated(proc) == {"numa_pages_migrated": 0, "pgmigrate_success": 0}
    plant(proc, "vmstat", "pgmigrate_success 12\npgmigrate_fail 3\n")
    assert numa.migrated(proc) == {"pgmigrate_success": 12}
    assert numa.moves(proc) == 0
    plant(proc, "self/task/132/sched", "x (132, #threads: 2)\n---\nse.nr_migrations      :       5\n")
    assert numa.moves(proc) == 5
    assert numa.moves(tmp_path / "nothing") is None
    assert (numa.balancing(proc), numa.balancing(tmp_path / "nothing")) == (True, None)


def test_where_recorded_mappings_lie(tmp_path: Path) -> None:
    _, proc = planted("two_sockets", tmp_path)
    assert sum(numa.lying([0x401000], proc).values()) == 260 * 4096
    plant(
        proc,
        "self/numa_maps",
        "00401000 default file=/bin/busybox dirty=260 mapmax=2 N0=260 kernelpagesize_kB=4\n"
        "005db000 default anon=2 dirty=7 active=5 N0=5 N1=2 kernelpagesize_kB=4\n"
        "7f0000000000 interleave:0-1 anon=4 dirty=4 N0=3 N1=1 kernelpagesize_kB=2048\n"
        "7f8c9686f000 default\n",
    )
    assert numa.lying([0x5DB000, 0x5DC123], proc) == {0: 5 * 4096, 1: 2 * 4096}, "one mapping, counted once"
    assert numa.lying([0x401000, 0x7F0000000007], proc) == {0: 260 * 4096 + (6 << 20), 1: 2 << 20}
    assert numa.lying([0x1000], proc) == {}, "below every mapping"
    assert numa.lying([0x7F8C9686F000], proc) == {}, "nothing was touched"
    assert numa.lying([0x401000], tmp_path) == {}


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="this kernel has no numa_maps")
def test_where_an_array_lies_here() -> None:
    values = np.ones(1 << 24, np.uint8)
    found = numa.lying([values.ctypes.data + (1 << 23)])
    assert set(found) <= {node.number for node in topology().nodes}
    assert sum(found.values()) >= values.nbytes - (2 << 20)


@pytest.mark.skipif(not Path("/sys/devices/system/node/online").exists(), reason="this kernel has no NUMA")
def test_this_machine() -> None:
    found = topology()
    assert {core for cores in found.working.values() for core in cores} == affinity()
    assert found.storing
    assert found.several or not numa.several_nodes() or len(found.nodes) > 1
