"""How the pool's threads share work: balance and utilization, of partitions that are known.

Busy times are processor times: what else the machine does changes the balance little, and the utilization a lot.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import monotonic, thread_time_ns
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from tritmark.harness.machine import cpu as machine
from tritmark.harness.measure.scaling import scaled
from tritmark.harness.record import Scaled
from tritmark.kernels import i2s_quantize
from tritmark.kernels.native.cpu import DEVICE, native
from tritmark.kernels.native.threads import watched

CC = shutil.which("cc")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CC is None, reason="there is no C compiler"),
    pytest.mark.skipif(machine.usable_cores() < 2, reason="with one core nothing is shared"),
]
STEPS = 100_000
"""Of an item: some 0.1 ms."""
TRIES = 50
PATIENCE_S = 20.0
"""How long calls are made until one shows what is looked for: a busy machine may give no second core for long."""
UNEQUAL = 5 / 9
"""The balance of two items of which one is nine times as long: (9 + 1) / 2 over 9."""
MIDDLE, HIGH = (UNEQUAL + 1) / 2, 0.9
Call = Callable[[list[int], int], int]


@pytest.fixture(scope="module")
def share_out(tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Shares items of so many steps out over so many threads, and tells how many took part."""
    library = tmp_path_factory.mktemp("thread_times") / "thread_times.so"
    source = Path(__file__).with_name("thread_times.c")
    subprocess.run([str(CC), "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    function = ctypes.CDLL(str(library)).share_out
    function.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t, ctypes.c_int32]
    address = native("pool").address()

    def call(steps: list[int], threads: int) -> int:
        return int(function(address, (ctypes.c_int64 * len(steps))(*steps), len(steps), threads))

    return call


def balances(share_out: Call, steps: list[int]) -> Iterator[float]:
    """Those of calls on two threads in which both took part, for PATIENCE_S."""
    until = monotonic() + PATIENCE_S
    while monotonic() < until:
        told = watched(native("pool"), lambda: share_out(steps, 2))
        assert told is not None
        if told.shared:
            yield told.mean_ns / told.most_ns


def test_the_balance_of_an_unequal_partition_is_low_whoever_does_what(share_out: Call) -> None:
    found = list(islice(balances(share_out, [9 * STEPS, STEPS]), TRIES))
    assert found, "two threads took part in no call"
    assert np.median(found) < MIDDLE


def test_the_balance_of_an_equal_one_is_high(share_out: Call) -> None:
    """Each thread does one of two equal items, and cannot take some of the other one. An interruption makes a thread
    busy for longer, so only calls without interruptions count."""
    assert any(found > HIGH for found in balances(share_out, [STEPS, STEPS]))


def test_one_core_is_half_of_two_threads(share_out: Call) -> None:
    with threadpool_limits(1):
        told = watched(native("pool"), lambda: share_out([STEPS] * 8, 2))
    assert told is not None
    assert told.shared == 0
    assert 0 < told.busy_ns / (2 * told.wall_ns) <= 0.5


@pytest.mark.timing
def test_the_utilization_of_an_equal_partition_is_high(share_out: Call) -> None:
    """In the best of many calls: others may need the cores."""
    until, best = monotonic() + PATIENCE_S, 0.0
    while best < HIGH and monotonic() < until:
        told = watched(native("pool"), lambda: share_out([STEPS] * 8, 2))
        assert told is not None
        best = max(best, told.busy_ns / (2 * told.wall_ns))
    assert HIGH < best <= 1


def test_what_one_thread_does_alone_is_busy_too(share_out: Call) -> None:
    values, alone = np.random.default_rng(0).standard_normal(1 << 20), []

    def calls() -> None:
        share_out([STEPS, STEPS], 2)
        begin = thread_time_ns()
        np.sort(values)
        alone.append(thread_time_ns() - begin)

    told = watched(native("pool"), calls)
    assert told is not None
    assert told.busy_ns > alone[0]


def test_nothing_is_told_where_the_pool_was_asked_for_nothing() -> None:
    assert watched(native("pool"), lambda: None) is None
    x = np.ones(1000, np.float32)
    assert watched(native("pool"), lambda: i2s_quantize(x, 0.7, threads=1)) is None


def test_nothing_is_counted_unless_somebody_watches(share_out: Call) -> None:
    pool = native("pool")
    pool.watch(True)
    pool.watch(False)
    share_out([STEPS, STEPS], 2)
    assert not any(pool.seen().values())


class Shared:
    """A kernel of the pool, bound."""

    ran, runs, bad, pointer, threads_used = "made", 0, -1, None, 1

    def __init__(self, share_out: Call, steps: list[int], threads: int) -> None:
        self._arguments = share_out, steps, threads

    def run(self) -> None:
        share, steps, threads = self._arguments
        self.threads_used = share(steps, threads)


def on_two(bind: Callable[[int], Any]) -> Scaled:
    (found,) = scaled(bind, DEVICE, (2,), np.random.default_rng(0))
    return found


def on_two_that_take_part(bind: Callable[[int], Any]) -> Scaled:
    until = monotonic() + PATIENCE_S
    while (found := on_two(bind)).balance is None and monotonic() < until:
        pass
    return found


@pytest.mark.timing
def test_a_kernel_s_figures_are_in_the_record(share_out: Call) -> None:
    unequal = on_two_that_take_part(lambda threads: Shared(share_out, [9 * STEPS // 8, STEPS // 8], threads))
    assert unequal.efficiency == unequal.speedup.median / 2
    assert unequal.balance is not None
    assert unequal.utilization is not None
    assert unequal.balance < MIDDLE
    equal = on_two_that_take_part(lambda threads: Shared(share_out, [STEPS // 8] * 8, threads))
    assert equal.balance is not None
    assert equal.balance > MIDDLE


@pytest.mark.timing
def test_a_kernel_without_the_pool_tells_nothing() -> None:
    x = np.ones(1 << 16, np.float32)

    class Own:
        ran, runs, bad, pointer, threads_used = "own", 0, -1, None, 2

        def run(self) -> None:
            np.rint(x)

    told = on_two(lambda threads: Own())
    assert (told.balance, told.utilization) == (None, None)
    assert told.efficiency is not None
