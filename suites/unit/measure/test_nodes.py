"""Rates between NUMA nodes, and what was moved: on made-up machines, and on this one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded_topologies import recorded

from tritmark.harness.errors import PlacementError
from tritmark.harness.machine import numa
from tritmark.harness.machine.numa import Node, Topology
from tritmark.harness.measure import nodes
from tritmark.harness.measure.nodes import NodeWatch, measure_nodes
from tritmark.harness.record import NodeUse
from tritmark.kernels.cuda.device import DEVICE as CUDA
from tritmark.kernels.native.cpu import DEVICE
from tritmark.kernels.native.placement import placed

CORES = sorted(os.sched_getaffinity(0))


def of_two_kinds() -> Topology:
    """All cores on node 0; node 1 is memory alone."""
    small = 64 << 20
    return Topology(
        nodes=(Node(0, tuple(CORES), small, (10, 20)), Node(1, (), small, (20, 10))),
        cores=frozenset(CORES),
        allowed=frozenset({0, 1}),
    )


def test_of_one_node_nothing_is_measured(tmp_path: Path) -> None:
    assert measure_nodes(DEVICE, recorded("one_node", tmp_path)) == []
    assert measure_nodes(CUDA, of_two_kinds()) == []


@pytest.mark.skipif(numa.several_nodes(), reason="memory may lie on another node than is said here")
@pytest.mark.skipif(0 not in numa.topology().storing, reason="this kernel has no NUMA")
def test_a_node_whose_memory_is_not_given_is_left_out() -> None:
    """Node 1 is not there: what is asked of it lies elsewhere, so it has no rate."""
    before = os.sched_getaffinity(0)
    device = replace(DEVICE, placed=lambda values, node: placed(values, node, of_two_kinds()))
    (found,) = measure_nodes(device, of_two_kinds())
    assert (found.cores, found.memory, found.threads) == (0, 0, len(CORES))
    assert found.nbytes == 8 << 20
    assert found.rate > 0
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(0 not in numa.topology().storing, reason="this kernel has no NUMA")
def test_memory_that_lies_elsewhere_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa, "lying", lambda addresses: {3: 4096})
    assert nodes._buffer(DEVICE, of_two_kinds(), 0, 1 << 20) is None


def test_refused_memory_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(values: object, node: int) -> object:
        raise PlacementError("no", next_step="none", number=1)

    class Refusing:
        placed = staticmethod(refuse)

    assert nodes._buffer(Refusing, of_two_kinds(), 1, 1 << 20) is None  # type: ignore[arg-type]


def test_what_was_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = iter(
        [{"numa_pages_migrated": 5, "pgmigrate_success": 100}, {"numa_pages_migrated": 7, "pgmigrate_success": 140}]
    )
    moves = iter([10, 13])
    monkeypatch.setattr(numa, "migrated", lambda: next(pages))
    monkeypatch.setattr(numa, "moves", lambda: next(moves))
    monkeypatch.setattr(numa, "lying", lambda addresses: {1: 4096 * len(list(addresses))})
    assert NodeWatch().seen([1, 2]) == NodeUse(nbytes={1: 8192}, pages_moved=40, threads_moved=3)


def test_what_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa, "migrated", dict)
    monkeypatch.setattr(numa, "moves", lambda: None)
    assert NodeWatch().seen([]) == NodeUse(nbytes={}, pages_moved=None, threads_moved=None)


def test_where_an_array_lies_now() -> None:
    values = np.ones(1 << 22, np.uint8)
    found = NodeWatch().seen([values.ctypes.data])
    assert found.nbytes.keys() <= {node.number for node in numa.topology().nodes}
