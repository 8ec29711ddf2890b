"""The pool of threads: every item once, also beside other callers, forks and bindings, and at most the allowed threads.

pool_stress.c calls the pool in every way that it allows, under sanitizers too; pools with planted faults show that it
sees them.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from platform import release
from statistics import median
from sys import executable
from threading import get_ident
from time import monotonic, process_time, sleep
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_topologies import NAMES, recorded
from threadpoolctl import threadpool_info, threadpool_limits

from tritmark.harness.machine import cpu as machine
from tritmark.kernels import i2s_quantize
from tritmark.kernels.native import threads
from tritmark.kernels.native.cpu import best, native

HERE = Path(__file__).parent
HELPERS = HERE.parents[1] / "helpers"
SOURCES = HERE.parents[3] / "cython_ext" / "src"
CC = shutil.which("cc")
pytestmark = pytest.mark.long
compiled = pytest.mark.skipif(CC is None, reason="there is no C compiler")
two_cores = pytest.mark.skipif(machine.usable_cores() < 2, reason="with one core nothing is shared")


def build(folder: Path, pool: str, *flags: str) -> Path:
    """The program of pool_stress.c with that text of pool.c; skips where the compiler lacks the sanitizer's library."""
    shutil.copytree(SOURCES / "pool", folder / "pool")
    (folder / "pool" / "pool.c").write_text(pool)
    program = folder / "stress"
    files = [str(HERE / "pool_stress.c"), *map(str, sorted((folder / "pool").glob("*.c")))]
    command = [str(CC), "-std=gnu11", "-O2", "-g", "-w", *flags, f"-I{folder}", *files]
    done = subprocess.run([*command, "-pthread", "-o", str(program)], capture_output=True, text=True, check=False)
    if done.returncode and flags and "cannot find" in done.stderr:
        pytest.skip(f"the compiler has no library for {flags[0]}")
    assert not done.returncode, done.stderr
    return program


def stress(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False, timeout=120)


POOL = (SOURCES / "pool" / "pool.c").read_text() if (SOURCES / "pool").exists() else ""


@compiled
@two_cores
@pytest.mark.parametrize("sanitizer", ["none", "thread", "address,undefined"])
def test_every_item_is_done_once(tmp_path: Path, sanitizer: str) -> None:
    """ThreadSanitizer's processes do not fork with threads. AddressSanitizer looks for leaks at the end."""
    program = build(tmp_path, POOL, *([] if sanitizer == "none" else [f"-fsanitize={sanitizer}"]))
    for told in ((), ("nodes",)):
        done = stress(program, *([] if sanitizer == "thread" else ["forks"]), *told)
        assert done.returncode == 0, done.stderr


FAULTS = {
    "others' shares are left": ("(count = piece(victim, j->shares, j->least, 1, &begin))", "0"),
    "an item is offered again": (
        "    *begin = back ? end - count : first;",
        # a hundred times: offered for ever, the call would not end until the program's alarm
        "    static _Atomic int again;\n"
        "    atomic_fetch_sub(&s->range, first % 7 == 3 && atomic_fetch_add(&again, 1) < 100);\n"
        "    *begin = back ? end - count : first;",
    ),
    "ranges begin anywhere": ("j.chunk = (units ? units : 1) * unit;", "j.chunk = units ? units : 1;"),
    "none waits for the others": ("        wait_for_workers(j, claimed, count);", "        (void)wait_for_workers;"),
    "a call within a call is shared": ("    if (inside) {", "    if (0) {"),
    "a child has its parent's workers": ("pthread_atfork(NULL, NULL, child);", ""),
    "workers round as they did": ("        control_as(j->control);", ""),
    "more threads than are allowed": ("int32_t room = most -", "int32_t room = MOST -"),
    "a sleeper is not woken": ("        wake(&w->asleep);", "        (void)0;"),
    "a share of another node is left": ("(own->high + nth - near) %", "(own->high + nth - near + 1) %"),
    "a guest is not brought": ("if (bring_still(j, claimed, count, ran))", "if (0)"),
    "a guest stays": ("        if (guest) {", "        if (0) {"),
}


@compiled
@two_cores
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(tmp_path: Path, fault: str) -> None:
    found, planted = FAULTS[fault]
    assert POOL.count(found) == 1
    program = build(tmp_path, POOL.replace(found, planted))
    done = stress(program, "guest" if "guest" in fault else "forks", *["nodes"] * ("node" in fault))
    assert done.returncode != 0, done.stdout


@pytest.mark.nightly
@compiled
@two_cores
@pytest.mark.parametrize("sanitizer", ["none", "thread"])
def test_a_worker_whose_core_is_taken_goes_on_on_its_caller_s(tmp_path: Path, sanitizer: str) -> None:
    done = stress(build(tmp_path, POOL, *[f"-fsanitize={sanitizer}"] * (sanitizer != "none")), "guest")
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
@compiled
@two_cores
@pytest.mark.timing
def test_workers_whose_core_is_taken_sleep_and_come_at_once(tmp_path: Path) -> None:
    """How many of a hundred calls have both threads beside another library's that spins, interleaved with
    workers that offer their core to it instead."""
    if tuple(map(int, re.findall(r"\d+", release())[:2])) < (6, 12):
        pytest.skip(f"Linux {release()} runs a thread that wakes no sooner for its short slices; 6.12 does")
    crowded, offering = "CROWDED = 64,", "CROWDED = 0,"
    assert POOL.count(crowded) == 1
    programs = [build(tmp_path / "crowded", POOL), build(tmp_path / "offering", POOL.replace(crowded, offering))]
    both = [[int(stress(program, "crowded").stdout) for program in programs] for _ in range(5)]
    ours, others = (median(each) for each in zip(*both, strict=True))
    assert ours > 1.5 * others, both


# In Python


def quantized(x: Any, count: int) -> Any:
    return i2s_quantize(x, 0.7, threads=count)


X = np.random.default_rng(0).standard_normal(1 << 19, dtype=np.float32)
EXPECTED = np.rint(np.clip(X / np.float32(0.7), -2, 1)).astype(np.int8)


@pytest.fixture(scope="module")
def pool() -> Any:
    quantized(X, 2)
    return native("pool")


def used(count: int, seconds: float = 20.0) -> int:
    """The most threads that took part in one of many calls."""
    from tritmark.harness.measure.buffers import empty

    buffer = empty((1 << 18,), np.uint8)
    buffer[...] = 1
    probe, most, until = native("ceilings").Probe(best("probe"), "compute", buffer, count), 1, monotonic() + seconds
    while monotonic() < until and most < min(2, count):
        probe.run()
        most = max(most, probe.threads_used)
    return most


@pytest.mark.parametrize("count", range(1, 9))
def test_the_bits_hang_on_no_number_of_threads(count: int) -> None:
    for _ in range(20):
        assert np.array_equal(quantized(X, count), EXPECTED)


def test_several_callers_at_once() -> None:
    with ThreadPoolExecutor(4) as callers:
        for found in callers.map(quantized, [X] * 200, [2, 3, 4, 7] * 50):
            assert np.array_equal(found, EXPECTED)


@two_cores
def test_two_threads_take_part_and_sleep_afterwards(pool: Any) -> None:
    assert used(2) == 2
    assert pool.workers() >= 1
    sleep(0.05)
    before = process_time()
    sleep(0.5)
    assert process_time() - before < 0.1


@two_cores
def test_a_fork_amid_calls() -> None:
    with ThreadPoolExecutor(1) as caller:
        for _ in range(10):
            going = caller.submit(lambda: [quantized(X, 2) for _ in range(20)])
            pid = os.fork()
            if pid == 0:
                ok = native("pool").workers() == 0 and np.array_equal(quantized(X, 2), EXPECTED)
                os._exit(0 if ok else 1)
            until = monotonic() + 60
            while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0 and monotonic() < until:
                sleep(0.01)
            assert ended == (pid, 0)
            assert all(np.array_equal(found, EXPECTED) for found in going.result())


def ran(code: str, **environment: str) -> str:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")} | environment
    command = [
        executable,
        "-c",
        f"import sys; sys.path[:0] = {[str(HERE), str(HELPERS)]!r}\nfrom test_pool import *\n{code}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.nightly
@two_cores
def test_calls_follow_their_threads_affinity() -> None:
    code = """
every = os.sched_getaffinity(0)
os.sched_setaffinity(0, {min(every)})
alone = used(2, 0.2), native("pool").workers()
os.sched_setaffinity(0, every)
sleep(0.05)
wide = used(2)
os.sched_setaffinity(0, {max(every)})
sleep(0.05)
print(alone, wide, used(2, 0.2))
"""
    assert ran(code) == "(1, 0) 2 1"


@pytest.mark.nightly
@two_cores
def test_a_thread_that_openmp_has_bound_still_has_the_process_s_cores() -> None:
    code = """
machine.affinity()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(used(2))
"""
    assert ran(code, OMP_PROC_BIND="true") == "2"
    assert ran(code.replace("used(2)", "used(2, 0.2)")) == "1"


def test_what_limits_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "quota", lambda: None)
    monkeypatch.setattr(threads, "physical_cores", lambda: 6)
    assert (threads.default(), threads.limit()) == (6, os.cpu_count())
    monkeypatch.setattr(threads, "quota", lambda: 1)
    assert threads.limit() == 1
    monkeypatch.setattr(threads, "quota", lambda: None)
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")
    assert threads.limit() == 1
    for told, most in (("2", 2), ("4,2", 4), ("9", 6), ("0", 6), ("many", 6), ("", 6)):
        monkeypatch.setenv("OMP_NUM_THREADS", told)
        assert threads.default() == most


@pytest.mark.nightly
@two_cores
def test_one_core_of_the_control_group_is_one_thread() -> None:
    code = """
threads.quota = lambda: 1
print(used(4, 0.2), native("pool").workers())
"""
    assert ran(code) == "1 0"


@two_cores
def test_threadpoolctl_sees_and_limits_the_pool(pool: Any) -> None:
    most = pool.threads()
    (found,) = [each for each in threadpool_info() if each["user_api"] == "tritmark"]
    assert found["num_threads"] == most
    with threadpool_limits(1):
        assert (pool.threads(), used(2, 0.2)) == (1, 1)
    assert pool.threads() == most
    assert used(2) == 2


@pytest.mark.nightly
def test_kernels_load_no_openmp() -> None:
    assert ran("quantized(X, 2); print('libgomp' in open('/proc/self/maps').read())") == "False"


# NUMA nodes, and cores of several speeds


@pytest.fixture
def told() -> Iterator[Any]:
    """The pool, which forgets nodes and cores that a test tells it of."""
    yield native("pool")
    native("pool").set_nodes([], {})
    threads.prepare(native("pool"))


def counts(pool: Any, count: int, at: int) -> list[int]:
    """Shares of each node; that they follow each other, and are all there are, is looked at here."""
    found = pool.shares(count, at)
    assert [share for shares in found for share in shares] == list(range(count))
    return [len(shares) for shares in found]


@pytest.mark.parametrize(
    ("name", "count", "at", "each"),
    [
        ("two_sockets", 2, 0, [2, 0]),
        ("two_sockets", 2, 1, [0, 2]),
        ("two_sockets", 2, -1, [1, 1]),
        ("two_sockets", 4, 1, [2, 2]),
        ("two_sockets", 8, 0, [4, 4]),
        ("sub_numa_clusters", 2, 2, [0, 0, 2, 0]),
        ("sub_numa_clusters", 8, 2, [2, 2, 2, 2]),
        ("memory_only", 4, 0, [2, 2]),
        ("memoryless", 4, 1, [2, 2]),
        ("eight_nodes", 1, 5, [0, 0, 0, 0, 0, 1, 0, 0]),
        ("eight_nodes", 8, 5, [1] * 8),
    ],
)
def test_shares_of_recorded_machines(
    tmp_path: Path, told: Any, name: str, count: int, at: int, each: list[int]
) -> None:
    """A call stays on the caller's node where that has physical cores enough; the sockets have two threads a core."""
    there = recorded(name, tmp_path)
    told.set_cores(there.cores)
    threads.set_nodes(told, there)
    assert counts(told, count, at) == each


def test_one_node_tells_the_pool_nothing(tmp_path: Path, told: Any) -> None:
    there = recorded("one_node", tmp_path)
    told.set_cores(there.cores)
    threads.set_nodes(told, there)
    assert told.shares(2, 0) == []


@pytest.mark.nightly
@given(st.data())
def test_shares_are_in_proportion_to_the_physical_cores(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    name = data.draw(st.sampled_from([name for name in NAMES if name != "one_node"]))
    whole = recorded(name, tmp_path_factory.mktemp("machine"))
    there = recorded(
        name,
        tmp_path_factory.mktemp("machine"),
        frozenset(data.draw(st.sets(st.sampled_from(sorted(whole.cores)), min_size=1))),
    )
    pool = native("pool")
    try:
        pool.set_cores(there.cores)
        threads.set_nodes(pool, there)
        count = data.draw(st.integers(1, 64))
        if len(there.working) < 2:
            assert pool.shares(count, -1) == []
            return
        cores, at = list(there.physical.values()), data.draw(st.integers(0, len(there.working) - 1))
        spread = [count * each / sum(cores) for each in cores]
        assert all(abs(found - part) < 1 for found, part in zip(counts(pool, count, -1), spread, strict=True))
        near = [count * (node == at) for node in range(len(cores))]
        assert counts(pool, count, at) == (near if count <= cores[at] else counts(pool, count, -1))
    finally:
        pool.set_nodes([], {})
        threads.prepare(pool)


BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


def shared(items: int, count: int, each: Callable[[int, int], None]) -> int:
    """A call of the pool over so many items, of a body in Python. Returns how many threads took part."""
    run = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_size_t] * 3, ctypes.c_int32, BODY, ctypes.c_void_p)(
        native("pool").address()
    )
    body = BODY(lambda _, begin, end: each(begin, end))
    return int(run(items, 1, 1, count, body, None))


def where_items_run(core: int) -> dict[int, set[int]]:
    """For each half of a call's items, from a caller on that core, the cores on which pieces that begin it ran."""
    os.sched_setaffinity(0, {core})
    libc, found = ctypes.CDLL(None), {0: set[int](), 32: set[int]()}

    def piece(begin: int, end: int) -> None:
        if begin in found:
            found[begin].add(libc.sched_getcpu())
        sleep(0.001 * (end - begin))

    for _ in range(20):
        shared(64, 2, piece)
    return found


@pytest.mark.nightly
@two_cores
def test_a_range_of_items_is_the_same_node_s_in_every_call() -> None:
    """Each core is made a node: a half of the items is run there, whichever the caller is on."""
    code = """
first, second = sorted(os.sched_getaffinity(0))[:2]
pool = native("pool")
pool.set_cores({first, second})
pool.set_nodes([[first], [second]], {})
for core in (first, second, first):
    found = where_items_run(core)
    # a worker that wakes late finds its share taken by the caller
    assert first in found[0] and second in found[32], (core, found)
    own = 0 if core == first else 32
    assert found[own] == {core}, (core, found)
print("kept")
"""
    assert ran(code) == "kept"


@two_cores
@pytest.mark.timing
@pytest.mark.parametrize("slower", [2, 4])
def test_slow_cores_get_less_work(slower: int) -> None:
    """Cores of two speeds, as sleeps: the slow one does no more than the piece that it takes first, half of its share,
    and what it still can while the fast one ends: as long as it is no slower than the half, both end together."""
    caller, done, unit = get_ident(), {True: 0, False: 0}, 0.001

    def piece(begin: int, end: int) -> None:
        fast = get_ident() == caller
        done[fast] += end - begin
        sleep(unit * (end - begin) * (1 if fast else slower))

    fair, first, last = 64 / (1 + slower), 64 / 2 / 2, 64 / 2 / 8
    slow_ones = []
    for _ in range(20):  # another process may have either core for a while
        done.update({True: 0, False: 0})
        shared(64, 2, piece)
        assert done[True] + done[False] == 64
        if done[False]:
            slow_ones.append(done[False])
    assert slow_ones
    assert median(slow_ones) <= max(first, fair + last), slow_ones
