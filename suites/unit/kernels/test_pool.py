"""The pool of threads: every item once, whoever calls, forks or binds meanwhile, and no more threads than are allowed.

pool_stress.c calls the pool in every way that it allows, under sanitizers too; pools with planted faults show that it
sees them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sys import executable
from time import monotonic, process_time, sleep
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tritmark.harness.machine import cpu as machine
from tritmark.kernels import i2s_quantize, threads
from tritmark.kernels.cpu import best, native

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "cython_ext" / "src"
CC = shutil.which("cc")
pytestmark = pytest.mark.long
compiled = pytest.mark.skipif(CC is None, reason="there is no C compiler")
two_cores = pytest.mark.skipif(machine.usable_cores() < 2, reason="with one core nothing is shared")


def build(folder: Path, pool: str, *flags: str) -> Path:
    """The program of pool_stress.c with that text of pool.c; skips where the compiler lacks the sanitizer's library."""
    (folder / "pool").mkdir()
    (folder / "pool" / "pool.c").write_text(pool)
    (folder / "pool" / "pool.h").write_text((SOURCES / "pool" / "pool.h").read_text())
    program = folder / "stress"
    files = [str(HERE / "pool_stress.c"), str(folder / "pool" / "pool.c")]
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
    done = stress(program, *([] if sanitizer == "thread" else ["forks"]))
    assert done.returncode == 0, done.stderr


FAULTS = {
    "others' shares are left": ("(count = piece(victim, j->shares, j->least, 1, &begin))", "0"),
    "an item is offered again": (
        "    *begin = back ? end - count : first;",
        "    atomic_fetch_sub(&s->range, first % 7 == 3);\n    *begin = back ? end - count : first;",
    ),
    "ranges begin anywhere": ("j.chunk = (units ? units : 1) * unit;", "j.chunk = units ? units : 1;"),
    "nobody waits for the others": ("while (left && turn(&waiting))", "left = 0;\n    while (0)"),
    "a call within a call is shared": ("    if (inside) {", "    if (0) {"),
    "a child has its parent's workers": ("pthread_atfork(NULL, NULL, child);", ""),
    "workers round as they did": ("        control_as(j->control);", ""),
    "more threads than are allowed": ("int32_t room = most -", "int32_t room = MOST -"),
    "a sleeper is not woken": ("        wake(&w->asleep);", "        (void)0;"),
}


@compiled
@two_cores
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(tmp_path: Path, fault: str) -> None:
    found, planted = FAULTS[fault]
    assert POOL.count(found) == 1
    program = build(tmp_path, POOL.replace(found, planted))
    done = stress(program, "forks")
    assert done.returncode != 0, done.stdout


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
    command = [executable, "-c", f"import sys; sys.path.insert(0, {str(HERE)!r})\nfrom test_pool import *\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


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


def test_kernels_load_no_openmp() -> None:
    assert ran("quantized(X, 2); print('libgomp' in open('/proc/self/maps').read())") == "False"
