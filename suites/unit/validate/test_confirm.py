"""Confirmation of a figure: another process's clock and expected values, and a fresh process if only time speaks
against it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from simulated_bench import CHANGES, KEY, MATERIAL, honest, measured

from tritmark.harness.providers import load
from tritmark.harness.record import Performance, Status
from tritmark.harness.spec import Workload
from tritmark.harness.validate.cases import Cases, Material
from tritmark.harness.validate.confirm import (
    ONCE_REFUTED,
    CpuTimeAccount,
    InterferenceWatch,
    audit_faults,
    confirm,
    confirmed,
    lap_faults,
    part_faults,
)
from tritmark.harness.validate.guard_names import Complaint, Guard
from tritmark.harness.validate.pieces import NOTHING
from tritmark.harness.validate.timed import timed
from tritmark.harness.worker import Workers

pytestmark = pytest.mark.timing


class Alone:
    def cores(self) -> float | None:
        return 0.0


# FAIL only if a fresh process repeats it


def made(reason: str = "", status: Status = Status.PASS, *guards: Guard) -> Performance:
    return Performance(status=status, reason=reason, caught_by=guards, doubted=bool(reason), tests=5)


CLOCK = made("it claims 1 ns a call", Status.FAIL, Guard.CLOCK)
FLOOR = made("1 ns a call is below", Status.FAIL, Guard.FLOOR)
WRONG = made("y[3] is 4, expected 5; it claims 1 ns a call", Status.FAIL, Guard.CLOCK, Guard.AUDIT)
BUSY = made("hot: it claims 1 ns a call, and takes 9 ns; other processes keep the cores busy", Status.AMBIGUOUS)


@pytest.mark.parametrize(
    ("first", "second", "status", "doubted"),
    [
        (CLOCK, made(), Status.PASS, False),
        (FLOOR, made(), Status.PASS, False),
        (BUSY, made(), Status.PASS, False),
        (CLOCK, CLOCK, Status.FAIL, True),
        (FLOOR, FLOOR, Status.FAIL, True),
        (CLOCK, FLOOR, Status.AMBIGUOUS, True),
        (CLOCK, WRONG, Status.FAIL, True),
        (BUSY, CLOCK, Status.FAIL, True),
        (BUSY, BUSY, Status.AMBIGUOUS, True),
        (CLOCK, BUSY, Status.AMBIGUOUS, True),
    ],
)
def test_what_rests_on_time_has_to_be_said_twice(
    first: Performance, second: Performance, status: Status, doubted: bool
) -> None:
    found = confirmed(first, lambda: second)
    assert (found.status, found.doubted) == (status, doubted), found.reason
    assert (found.tests, found.repeated) == (10, 1)
    assert not found.caught_by or status is not Status.PASS
    assert set(found.caught_by) >= (set(first.caught_by) & set(second.caught_by))
    assert (ONCE_REFUTED in found.limits) == (first is CLOCK and status is Status.PASS)


@pytest.mark.parametrize("first", [made(), WRONG, made("MemoryError: 1", Status.ERROR, Guard.MEMORY)])
def test_what_is_exact_or_not_doubted_is_not_measured_again(first: Performance) -> None:
    def never() -> Performance:
        raise AssertionError

    assert confirmed(first, never) == first


# The other process's clock


def spin(ns: float) -> None:
    """Keep a core busy for that much CPU time."""
    end = time.thread_time_ns() + ns
    while time.thread_time_ns() < end:
        pass


def spinning(call_ns: float) -> Callable[[str, int, int], None]:
    return lambda temperature, rounds, calls: spin(rounds * calls * call_ns)


@pytest.mark.parametrize("call_ns", [1000, 100_000, 30_000_000])
def test_an_honest_time_is_confirmed(call_ns: float) -> None:
    faults, doubts = lap_faults(spinning(call_ns), call_ns, 1, 1, os.getpid())
    assert not faults
    assert all("other processes keep the cores busy" in doubt for doubt in doubts)


@pytest.mark.parametrize("call_ns", [1000, 100_000, 30_000_000])
def test_a_tenth_of_the_time_is_refuted(call_ns: float) -> None:
    faults, _ = lap_faults(spinning(call_ns), call_ns / 10, 1, 1, os.getpid())
    assert len(faults) == 1
    assert str(faults[0]).startswith(f"guard clock: hot: it claims {call_ns / 10:.0f} ns a call")


def test_work_that_others_do_while_the_process_waits_is_in_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritmark.harness.validate.confirm.SystemLoad", Alone)
    faults, _ = lap_faults(lambda temperature, rounds, calls: time.sleep(rounds * calls * 1e-4), 1e4, 1, 1, os.getpid())
    assert len(faults) == 1
    assert faults[0].guard is Guard.CLOCK


@pytest.mark.parametrize(
    ("threads", "waited", "proof"),
    [(2, 0, True), (2, 1, True), (2, 2, False), (2, 4, False), (1, 4, True)],
    ids=["alone", "beside one a core", "beside two", "beside four", "one thread"],
)
def test_cpu_time_of_threads_that_wait_for_each_other_proves_nothing_in_a_crowd(
    monkeypatch: pytest.MonkeyPatch, threads: int, waited: int, proof: bool
) -> None:
    """`waited`: runnable time without a core, relative to their CPU time. A thread spins while it waits for another one
    without a core."""
    call_ns = 1_000_000

    def taken(
        lap: Callable[[int, int], None], rounds: int, calls: int, pid: int | None, threads: int = 1
    ) -> tuple[int, CpuTimeAccount]:
        ran = 10 * rounds * calls * call_ns
        each = {str(nth): ran for nth in range(threads)}
        return ran, CpuTimeAccount(ran * threads, each, dict.fromkeys(each, ran * waited))

    monkeypatch.setattr("tritmark.harness.validate.confirm.elapsed", taken)
    monkeypatch.setattr("tritmark.harness.validate.confirm._DOUBT_NS", 0)
    monkeypatch.setattr(InterferenceWatch, "crowded", lambda self, threads: True)
    faults, doubts = lap_faults(lambda temperature, rounds, calls: None, call_ns, 1, threads, os.getpid())
    assert bool(faults) is proof
    assert bool(doubts) is not proof


def test_an_absurd_claim_makes_no_lap_of_hours() -> None:
    made = 0

    def lap(temperature: str, rounds: int, calls: int) -> None:
        nonlocal made
        made += rounds * calls
        spin(rounds * calls * 1e6)

    faults, _ = lap_faults(lap, 1.0, 1, 1, os.getpid())
    assert faults
    assert made < 2000


@pytest.mark.parametrize("lingers_s", [0, 0.1])
def test_a_second_thread_is_counted_by_its_work(lingers_s: float) -> None:
    """And not counted again if its thread has yet to exit after its work, as beside busy processes."""
    call_ns = 10_000_000

    def shared(temperature: str, rounds: int, calls: int) -> None:
        block = bytes(1 << 16)

        def work() -> None:
            """For that much CPU time of its own thread, with any wait for a core."""
            end = time.thread_time_ns() + rounds * calls * call_ns
            while time.thread_time_ns() < end:
                hashlib.sha256(block)  # without the interpreter's lock

        def work_and_linger() -> None:
            work()
            done.set()
            time.sleep(lingers_s)

        done = threading.Event()
        other = threading.Thread(target=work_and_linger)
        other.start()
        work()
        done.wait()
        if not lingers_s:
            other.join()

    faults, _ = lap_faults(shared, call_ns, 1, 1, os.getpid())
    assert "guard threads: 2 threads work in its calls, but at most 1 are allowed" in map(str, faults)
    faults, _ = lap_faults(shared, call_ns, 1, 2, os.getpid())
    assert not any(fault.guard is Guard.THREADS for fault in faults)


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    code = (
        "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\nprint(1, "
        "flush=True)\ninput()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.communicate(b"\n")


def test_the_account_of_another_process_is_that_of_the_kernel(busy: subprocess.Popen[bytes]) -> None:
    assert busy.stdout is not None
    busy.stdout.readline()
    found = CpuTimeAccount.of(busy.pid)
    assert found is not None
    assert 0.2e9 <= found.total < 2e9
    assert sum(found.threads.values()) <= found.total
    assert found.since(CpuTimeAccount(0, {}, {})).at_work == 1
    assert CpuTimeAccount.of(None) is None
    assert CpuTimeAccount.of(2**22 + 1) is None  # no process has that number


def test_doubts_make_it_ambiguous_and_faults_make_it_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = MATERIAL.cases(KEY)
    performance, bench = measured(cases, honest)
    told: tuple[list[Complaint], list[str]] = ([], ["other processes keep the cores busy"])
    monkeypatch.setattr("tritmark.harness.validate.confirm.lap_faults", lambda *args: told)
    left = [*audit_faults(cases, bench.audited, CHANGES), *part_faults(cases, bench.parts, CHANGES)]
    judged = partial(confirm, left=left, lap=bench.lap, threads=1, pid=None)
    assert judged(performance).status is Status.AMBIGUOUS
    failed = performance.model_copy(update={"status": Status.FAIL, "reason": "too fast", "caught_by": (Guard.FLOOR,)})
    assert judged(failed).status is Status.FAIL
    told = ([Complaint(Guard.CLOCK, "hot")], [])
    assert judged(performance).status is Status.FAIL
    assert judged(failed).caught_by == ("floor", "clock")
    told = ([], [])
    # If no process is involved: one clock, and cold against hot. Else clock and threads at work, hot and cold.
    assert judged(performance) == performance.model_copy(update={"tests": performance.tests + 2})
    assert judged(performance, pid=1).tests == performance.tests + 5


def test_what_others_take_is_told_from_what_a_worker_that_is_yet_to_begin_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = load()
    variant = next(each for each in installed.registry.variants if each.id == "cpu/i2s_quantize/none/int8/scalar")
    material = Material(
        installed.ops["i2s_quantize"], Workload(op="i2s_quantize", axes={"n": 1000}, family="uniform"), 0
    )
    cases = material.cases(variant.key)
    assert isinstance(cases, Cases)
    crowds: list[bool] = []

    class Full(InterferenceWatch):
        def crowded(self, threads: int) -> bool:
            monkeypatch.setattr(self._others, "cores", lambda: 64.0)
            crowds.append(super().crowded(threads))
            return crowds[-1]

    monkeypatch.setattr("tritmark.harness.validate.timed.InterferenceWatch", Full)
    with Workers(installed) as workers:
        encoded = tuple(material.encoded("none"))
        axes = {"n": 1000}
        timed(
            workers.of(variant),
            cases,
            encoded,
            axes,
            NOTHING,
            layout="aligned",
            seed=0,
            threads=1,
            roofs={},
            budget_s=0.01,
        )
    assert crowds == [True]
