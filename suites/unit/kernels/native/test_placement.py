"""Packed weights on NUMA nodes: that they lie where they were told to, or that an error says that they do not.

On a machine of one node, others are made up; suites/large/two_nodes.py does the same on two."""

from __future__ import annotations

import errno
import os
import subprocess
from itertools import pairwise
from pathlib import Path
from sys import executable
from typing import Any

import numpy as np
import pytest
from recorded_topologies import recorded

from tritmark.harness.errors import InvalidArgumentError, PlacementError
from tritmark.harness.machine import numa
from tritmark.harness.machine.numa import Node, Topology, on_node, topology
from tritmark.kernels import QuantizedLinear, pack_weights
from tritmark.kernels.native import extensions, placement
from tritmark.kernels.native.cpu import native
from tritmark.kernels.native.placement import pages, placed
from tritmark.kernels.weights import packed

HERE = topology()
VALUES = np.random.default_rng(0).integers(0, 256, (3, 700_001), np.uint8)
LAST = max(HERE.storing, default=0)


def can_look() -> bool:
    try:
        return bool(HERE.storing) and bool(pages(VALUES))
    except PlacementError:
        return False


looking = pytest.mark.skipif(not can_look(), reason="this kernel or container does not tell where pages lie")
two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="each made-up node needs a core")


def made_up(*nodes: int) -> Topology:
    """This machine's cores dealt out over those nodes, each with memory."""
    cores = sorted(os.sched_getaffinity(0))
    dealt = {node: tuple(cores[index :: len(nodes)]) for index, node in enumerate(nodes)}
    return Topology(
        nodes=tuple(Node(node, dealt[node], 1 << 30, tuple(10 + 11 * (to != node) for to in nodes)) for node in nodes),
        cores=frozenset(cores),
        allowed=frozenset(nodes),
    )


def test_on_one_node_nothing_is_copied(tmp_path: Path) -> None:
    there = recorded("one_node", tmp_path)
    for told in ("first-touch", "interleave", 0):
        assert np.shares_memory(placed(VALUES, told, there), VALUES)


@looking
@two_cores
@pytest.mark.parametrize("told", ["interleave", LAST])
def test_bytes_are_kept_and_lie_there(told: Any) -> None:
    found = placed(VALUES, told, made_up(LAST, LAST + 1) if told == LAST else HERE)
    assert np.array_equal(found, VALUES.reshape(-1))
    assert set(pages(found)) <= ({LAST} if told == LAST else set(HERE.storing))


@looking
@two_cores
@pytest.mark.skipif(HERE.several, reason="there are several nodes here")
@pytest.mark.parametrize("nbytes", [1 << 20, 65 << 20])
def test_a_planted_wrong_placement_is_seen(nbytes: int) -> None:
    """The second core is said to be another node's: what it touches first does not lie there."""
    there, values = made_up(LAST, LAST + 1), np.ones(nbytes, np.uint8)
    with pytest.raises(PlacementError, match=f"pages should lie on node {LAST + 1}: .* on node {LAST}"):
        placed(values, "first-touch", there)
    with pytest.raises(PlacementError):
        placed(values, LAST + 1, there)


@looking
@two_cores
@pytest.mark.skipif(HERE.several, reason="there are several nodes here")
def test_interleaving_over_a_node_that_gives_none_is_seen() -> None:
    with pytest.raises(PlacementError):
        placed(np.ones(16 << 20, np.uint8), "interleave", made_up(LAST, LAST + 1))


def test_each_node_touches_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    there = made_up(0, 1) if len(os.sched_getaffinity(0)) > 1 else made_up(0)
    parts = placement._parts(there, 40960 + 17, 4096)
    assert parts[0][1] == 0
    assert parts[-1][2] == 40960 + 17
    for (_, _, end), (_, begin, _) in pairwise(parts):
        assert begin == end
        assert end % 4096 == 0
    touched: dict[int, frozenset[int]] = {}

    class Watched:
        def __setitem__(self, part: slice, values: Any) -> None:
            touched[part.start] = frozenset(os.sched_getaffinity(0))

    before = os.sched_getaffinity(0)
    placement._write(Watched(), VALUES.reshape(-1)[: 40960 + 17], parts, there)  # type: ignore[arg-type]
    assert touched == {begin: frozenset(there.working[node]) for node, begin, _ in parts}
    assert os.sched_getaffinity(0) == before


def test_parts_are_in_proportion_to_physical_cores(tmp_path: Path) -> None:
    there = recorded("two_sockets", tmp_path, frozenset({0, 1, 2, 4, 5}))
    assert there.physical == {0: 2, 1: 1}
    assert placement._parts(there, 9 << 20, 4096) == [(0, 0, 6 << 20), (1, 6 << 20, 9 << 20)]


@pytest.mark.parametrize("told", ["near", 7, -1, True, None, 0.0])
def test_what_is_no_placement(tmp_path: Path, told: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"placement is .*legal: 'first-touch', 'interleave', or .*0, 1"):
        placed(VALUES, told, recorded("two_sockets", tmp_path))


def test_a_node_without_memory_is_no_placement(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError):
        placed(VALUES, 1, recorded("memoryless", tmp_path))


@pytest.mark.parametrize(
    ("number", "said"), [(errno.EPERM, "SYS_NICE"), (errno.ENOSYS, "CONFIG_NUMA"), (errno.EIO, "EIO")]
)
def test_refusals_are_told(monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    class Refusing:
        def bind(self, memory: Any, nodes: Any) -> None:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(extensions, "native", lambda module: Refusing())
    with pytest.raises(PlacementError, match=said) as raised:
        placed(VALUES, 0, made_up(0, 1))
    assert raised.value.number == number


FILTER = """
import ctypes, errno, platform, struct
numbers = {"x86_64": (237, 279), "aarch64": (235, 239)}[platform.machine()]  # mbind, move_pages
steps = [(0x20, 0, 0, 0)]
steps += [step for number in numbers for step in ((0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | errno.EPERM))]
steps += [(0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert not libc.prctl(38, 1, 0, 0, 0) and not libc.prctl(22, 2, program, 0, 0), ctypes.get_errno()
"""
"""As the seccomp filter of a container's runtime: both calls give EPERM from here on."""


@pytest.mark.nightly
@two_cores
def test_in_a_container_that_forbids_the_system_calls() -> None:
    code = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2] / "helpers")]!r}
import logging
from test_placement import *
logging.basicConfig(level="WARNING", stream=sys.stdout, format="%(message)s")
{FILTER}
there = made_up(0, 1)
for told in (0, "interleave"):
    try:
        placed(VALUES, told, there)
    except PlacementError as error:
        print(error.number == errno.EPERM, "--cap-add SYS_NICE" in str(error))
print(np.array_equal(placed(VALUES, "first-touch", there), VALUES.reshape(-1)))
"""
    done = subprocess.run([executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [lines[0], lines[1], lines[-1]] == ["True True", "True True", "True"]
    assert "the placement of the pages could not be checked" in lines[2]


def weights(format: str) -> Any:
    codes = np.random.default_rng(1).integers(-1, 2, (96, 256), np.int8)
    return pack_weights(codes, np.float32(0.5), format=format)


def test_what_weights_are_repacked_to_lies_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def copied(values: Any, told: Any) -> Any:
        asked.append(told)
        return values.reshape(-1).copy()

    monkeypatch.setattr(packed, "placed", copied)
    made = weights("row16").placed("interleave")
    assert (made.placement, asked) == ("interleave", ["interleave"])
    assert np.array_equal(made.packed_as("tile64"), weights("tile64").data)
    assert asked == ["interleave", "interleave"]
    assert weights("row16").packed_as("tile64") is not None
    assert len(asked) == 2


def test_a_layer_gives_the_same_bits() -> None:
    x = np.random.default_rng(2).standard_normal((3, 256), np.float32)
    plain = QuantizedLinear(weights("tile64"))(x)
    for told in ("first-touch", "interleave", LAST) if HERE.storing else ("first-touch",):
        assert np.array_equal(QuantizedLinear(weights("tile64").placed(told))(x), plain)


def test_a_copy_for_each_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, asked = recorded("memoryless", tmp_path), list[Any]()
    monkeypatch.setattr(packed, "topology", lambda: there)

    def ask(values: np.ndarray, told: object) -> np.ndarray:
        asked.append(told)
        return values.reshape(-1)

    monkeypatch.setattr(packed, "placed", ask)
    assert [*weights("tile64").replicas()] == [0, 1]
    assert asked == [0, 0], "the second socket has no memory of its own"
    monkeypatch.setattr(packed, "topology", lambda: Topology((), frozenset({0}), frozenset()))
    assert [*weights("tile64").replicas()] == [0]


def test_a_thread_that_stays_on_a_node() -> None:
    before, there = os.sched_getaffinity(0), made_up(3)
    with on_node(3, there):
        assert os.sched_getaffinity(0) == set(there.working[3])
    assert os.sched_getaffinity(0) == before
    with pytest.raises(InvalidArgumentError, match="legal: a node with cores for this process: 3"), on_node(0, there):
        pass


@looking
def test_pages_that_were_never_touched_lie_nowhere() -> None:
    fresh = placement._mapped(1 << 20, huge=False)
    assert pages(fresh) == {}
    fresh[: 1 << 19] = 1
    assert sum(pages(fresh).values()) == (1 << 19) // os.sysconf("SC_PAGE_SIZE")
    assert native("numa").pages(fresh)[1] == (1 << 19) // os.sysconf("SC_PAGE_SIZE")


@looking
def test_the_kernel_s_own_account_agrees() -> None:
    found = placed(np.ones(8 << 20, np.uint8), LAST, made_up(LAST, LAST + 1))
    if Path("/proc/self/numa_maps").exists():
        assert numa.lying([found.ctypes.data]).get(LAST, 0) >= found.nbytes
