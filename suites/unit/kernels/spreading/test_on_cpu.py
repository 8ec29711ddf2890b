"""`spread` on the CPU: the results of one call after the other, the largest first, never more threads than allowed."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from threading import Barrier, Event, Lock, Thread, active_count, get_ident
from time import monotonic, perf_counter, sleep, thread_time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.machine import cpu as machine
from tritmark.kernels import (
    Spread,
    absmean_quantize,
    activation_quantize,
    i2s_dequantize,
    i2s_quantize,
    pack_codes,
    pack_weights,
    spread,
    ternary_matmul,
    ternary_quantize,
)
from tritmark.kernels.native.cpu import native
from tritmark.kernels.native.threads import allowed, watched
from tritmark.kernels.spreading import on_cpu
from tritmark.kernels.spreading.on_cpu import LEAST_S, over_threads

RNG = np.random.default_rng(17)
PATIENCE_S = 30.0
two_cores = pytest.mark.skipif(machine.usable_cores() < 2, reason="with one core nothing is shared")


class Calls:
    """Calls that take their work in seconds divided by their threads, on a clock of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float]) -> None:
        self.seconds = seconds
        self.begun: list[tuple[int, int]] = []
        """Names and threads, in order."""
        self.most = 0
        """The most threads at work."""
        self._at_work = 0
        self._now = 0.0
        self._lock = Lock()
        self.inside: Callable[[int], None] = lambda name: None
        monkeypatch.setattr(on_cpu, "allowed", lambda pool, threads: threads)
        monkeypatch.setattr(on_cpu, "perf_counter", lambda: self._now)

    def __call__(self, name: int, threads: int) -> str:
        with self._lock:
            self.begun.append((name, threads))
            self._at_work += threads
            self.most = max(self.most, self._at_work)
        self.inside(name)
        with self._lock:
            self._now += self.seconds[name] / threads
            self._at_work -= threads
        return f"result {name}"

    def run(self, threads: int) -> Spread[int, str]:
        """Every call, with the work in microseconds."""
        work = {name: max(1, round(1e6 * each)) for name, each in self.seconds.items()}
        return over_threads(self, work, threads, lambda name: f"item {name}")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 0.1), max_size=20), st.integers(1, 6))
def test_each_is_done_once_by_as_many_threads_as_allowed(times: list[float], threads: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        calls = Calls(patch, dict(enumerate(times)))
        found = calls.run(threads)
    assert list(found.results.items()) == [(name, f"result {name}") for name in range(len(times))]
    assert sorted(name for name, _ in calls.begun) == list(range(len(times)))
    assert calls.most <= threads
    assert {count for _, count in calls.begun} <= {1, threads}
    assert set(found.made_by.values()) <= {"cpu"}
    assert list(found.busy_s) == [f"cpu {number}" for number in range(threads)]


def test_the_largest_begin_first(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, {name: 0.01 * (1 + name * 7 % 20) for name in range(20)})
    calls.run(1)
    assert [calls.seconds[name] for name, _ in calls.begun] == sorted(calls.seconds.values(), reverse=True)


@pytest.mark.parametrize(
    ("seconds", "threads", "alone"),
    [
        ([0.1] * 12, 4, {0}),  # the first gives the rate
        ([0.1] * 3, 4, {0, 1, 2}),  # fewer than threads
        ([1.0, 0.9, *[0.01] * 30], 4, {0, 1}),  # the others would wait for these
        ([0.1, *[LEAST_S / 2] * 12], 4, set(range(13))),  # small ones
        ([0.1] * 5, 1, set(range(5))),
    ],
)
def test_which_calls_get_all_threads(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float], threads: int, alone: set[int]
) -> None:
    calls = Calls(monkeypatch, dict(enumerate(seconds)))
    calls.run(threads)
    got = {name for name, count in calls.begun if count == threads}
    assert len(got) == len(alone)
    assert {seconds[name] for name in got} == {seconds[name] for name in alone}
    assert calls.most <= threads


def test_calls_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, together = Calls(monkeypatch, dict.fromkeys(range(10), 0.1)), Barrier(3)
    seen: set[int] = set()

    def inside(name: int) -> None:
        seen.add(get_ident())
        if len(calls.begun) > 1:
            together.wait(PATIENCE_S)  # breaks if fewer than three run

    calls.inside = inside
    assert len(calls.run(3).results) == 10
    assert calls.most == len(seen) == 3


def test_a_thread_that_is_done_takes_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread is held in its first call until the other has done all others."""
    calls, others = Calls(monkeypatch, dict.fromkeys(range(9), 0.1)), Event()

    def inside(name: int) -> None:
        if len(calls.begun) == 9:
            others.set()
        elif len(calls.begun) == 2:
            assert others.wait(PATIENCE_S)

    calls.inside = inside
    assert len(calls.run(2).results) == 9


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_names_its_item_and_keeps_the_others(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    calls = Calls(monkeypatch, {name: 0.1 + 0.01 * name for name in range(12)})

    def inside(name: int) -> None:
        if name == 5:
            raise InvalidArgumentError(op="made_up", argument="x", found="bad", legal="good")

    calls.inside = inside
    with pytest.raises(InvalidArgumentError, match="made_up: x is bad") as raised:
        calls.run(threads)
    assert raised.value.__notes__ == ["item 5"]
    finished: Spread[int, str] = raised.value.spread  # type: ignore[attr-defined]
    begun = {name for name, _ in calls.begun}
    assert finished.results == {name: f"result {name}" for name in sorted(begun - {5})}, "what had begun is finished"
    assert begun >= set(range(6, 12))
    assert len(begun) <= 7 + threads, "nothing begins after it"


def test_an_interrupt_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, dict.fromkeys(range(30), 0.1))

    def inside(name: int) -> None:
        if len(calls.begun) == 4:
            raise KeyboardInterrupt

    calls.inside = inside
    with pytest.raises(KeyboardInterrupt):
        calls.run(3)
    assert len(calls.begun) < 30


# The public function

Checked = tuple[Callable[..., Any], Callable[[np.random.Generator, int], Any], dict[str, Any]]


def floats(rng: np.random.Generator, n: int) -> Any:
    return rng.standard_normal((n % 3 + 1, 64 * n), np.float32)


FUNCTIONS: dict[str, Checked] = {
    "ternary_quantize": (ternary_quantize, floats, {"block": 64, "packed": True}),
    "i2s_quantize": (i2s_quantize, lambda rng, n: (floats(rng, n), 0.5), {}),
    "i2s_dequantize": (i2s_dequantize, lambda rng, n: (rng.integers(-2, 2, (n, 64), np.int8), 0.5), {}),
    "absmean_quantize": (absmean_quantize, floats, {}),
    "activation_quantize": (activation_quantize, floats, {}),
}


def same(one: Any, other: Any) -> None:
    several = isinstance(one, tuple)
    for mine, theirs in zip(one, other, strict=True) if several else [(one, other)]:
        np.testing.assert_array_equal(mine, theirs)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_results_are_those_of_one_call_after_the_other(data: st.DataObject) -> None:
    function, make, options = FUNCTIONS[data.draw(st.sampled_from(sorted(FUNCTIONS)))]
    sizes = data.draw(st.lists(st.integers(1, 400), max_size=12))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    tensors = {f"layer {number}": make(rng, size) for number, size in enumerate(sizes)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_cpu, "LEAST_S", data.draw(st.sampled_from([0.0, LEAST_S])))
        found = spread(function, tensors, devices="cpu", threads=data.draw(st.integers(1, 3)), **options)
    assert list(found.results) == list(tensors)
    for name, tensor in tensors.items():
        arguments = tensor if isinstance(tensor, tuple) else (tensor,)
        same(found.results[name], function(*arguments, **options))
    assert found.utilization is None or 0 <= found.utilization <= 1
    assert found.balance is None or 0 < found.balance <= 1
    assert (found.failed, found.copies) == ((), {})


def test_nothing_runs_without_tensors() -> None:
    before = active_count()
    nothing: Any
    for nothing in ([], {}):
        found = spread(ternary_quantize, nothing, devices=["cpu"])
        assert (found.results, found.made_by, found.rates, found.wall_s) == ({}, {}, {}, 0.0)
        assert (found.utilization, found.balance) == (None, None)
    assert active_count() == before


def test_a_tensor_that_the_function_refuses_is_named() -> None:
    tensors = [RNG.standard_normal(1 << 16, np.float32) for _ in range(6)]
    tensors[4] = np.full(1000, np.inf, np.float32)  # the smallest, so the last
    with pytest.raises(InvalidArgumentError, match="x is inf at index 0") as raised:
        spread(ternary_quantize, tensors, devices="cpu")
    assert raised.value.__notes__ == ["spread: tensor 4, on cpu"]
    finished: Spread[int, Any] = raised.value.spread  # type: ignore[attr-defined]
    assert list(finished.results) == [0, 1, 2, 3, 5]
    for number, result in finished.results.items():
        same(result, ternary_quantize(tensors[number]))


def without_threads(x: Any, device: str) -> Any:
    raise AssertionError("never called")


@pytest.mark.parametrize(
    ("function", "options", "kind", "words"),
    [
        (
            without_threads,
            {},
            InvalidArgumentError,
            "function is without_threads; legal: a function that takes a device",
        ),
        (ternary_quantize, {"threads": 0}, InvalidArgumentError, "threads is 0"),
        (ternary_quantize, {"threads": True}, InvalidArgumentError, "threads is True"),
        (ternary_quantize, {"devices": ("cpu", "cuda:0")}, (InvalidArgumentError, NoCompatibleKernelError), "cuda"),
        (ternary_quantize, {"devices": "cpuu"}, NoCompatibleKernelError, "cpuu"),
        (pack_codes, {}, InvalidArgumentError, "legal: a function that takes a device and threads"),
        (ternary_quantize, {"variant": "avx3"}, NoCompatibleKernelError, "avx3"),
    ],
)
def test_bad_arguments_are_refused(function: Any, options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        spread(function, [floats(RNG, 3)], **{"devices": "cpu", **options})


def spun(x: Any, device: str, threads: int) -> None:
    """Uses 3 ms of processor time in each call, without the pool."""
    begin = thread_time()
    while thread_time() - begin < 3e-3:
        pass


def test_busy_times_are_processor_times() -> None:
    found = spread(spun, [np.zeros(1000)] * 12, devices="cpu")
    assert sum(found.busy_s.values()) >= 12 * 3e-3
    assert found.rates["cpu"] <= 12 * 8000 / (12 * 3e-3)
    assert found.utilization is not None
    assert found.balance is not None
    assert 0 < found.utilization <= 1
    assert found.utilization == pytest.approx(sum(found.busy_s.values()) / len(found.busy_s) / found.wall_s)


@two_cores
def test_threads_are_those_of_one_call() -> None:
    pool = native("pool")
    assert allowed(pool, 10**6) <= machine.usable_cores()
    assert allowed(pool, 1) == 1
    with threadpool_limits(1, user_api="tritmark"):
        assert allowed(pool, 8) == 1
        assert len(spread(spun, [np.zeros(9)] * 3, devices="cpu", threads=8).busy_s) == 1
    assert len(spread(spun, [np.zeros(9)] * 3, devices="cpu", threads=2).busy_s) == 2


@two_cores
def test_a_call_with_one_thread_does_not_use_the_pool() -> None:
    """So calls of several threads at the same time have no threads below them."""
    x, pool = RNG.standard_normal(1 << 20, np.float32), native("pool")
    assert watched(pool, lambda: i2s_quantize(x, 0.7, threads=1)) is None
    assert watched(pool, lambda: i2s_quantize(x, 0.7, threads=2)) is not None


def test_a_pool_that_is_watched_is_left_alone() -> None:
    x, pool = RNG.standard_normal(1 << 20, np.float32), native("pool")
    inner: list[Any] = []

    def outer() -> None:
        i2s_quantize(x, 0.7, threads=2)
        inner.append(watched(pool, lambda: i2s_quantize(x, 0.7, threads=2)))

    assert watched(pool, outer) is not None
    assert inner == [None]


# Kernels release the GIL


def others_run(call: Callable[[], object]) -> bool:
    """Whether Python code of another thread ran during the call, in its middle half. Tried again for a while, since
    the other thread may have no core."""
    call()
    end, before = monotonic() + PATIENCE_S, sys.getswitchinterval()
    sys.setswitchinterval(10 * PATIENCE_S)  # a thread loses the GIL only where it releases it
    try:
        while monotonic() < end:
            times: list[float] = []
            done = Event()

            def timed(times: list[float] = times, done: Event = done) -> None:
                times.append(perf_counter())
                call()
                times.append(perf_counter())
                done.set()

            thread, stamps = Thread(target=timed), list[float]()
            thread.start()
            while not done.is_set():
                stamps.append(perf_counter())
                sleep(0)  # releases the GIL
            thread.join()
            quarter = (times[1] - times[0]) / 4
            if any(times[0] + quarter < stamp < times[1] - quarter for stamp in stamps):
                return True
    finally:
        sys.setswitchinterval(before)
    return False


LARGE = RNG.standard_normal((1024, 2048), np.float32)
CODES = RNG.integers(-1, 2, (1024, 2048), dtype=np.int8)
WEIGHTS = pack_weights(CODES, 0.5)
KERNELS: dict[str, Callable[[], object]] = {
    "ternary_quantize": lambda: ternary_quantize(LARGE, threads=1),
    "i2s_quantize": lambda: i2s_quantize(LARGE, 0.5, threads=1),
    "i2s_dequantize": lambda: i2s_dequantize(CODES, 0.5, threads=1),
    "absmean_quantize": lambda: absmean_quantize(LARGE, threads=1),
    "activation_quantize": lambda: activation_quantize(LARGE, threads=1),
    "ternary_matmul": lambda: ternary_matmul(CODES[:512], WEIGHTS, threads=1),
}


@two_cores
@pytest.mark.parametrize("name", KERNELS)
def test_two_threads_overlap(name: str) -> None:
    assert others_run(KERNELS[name])


@two_cores
def test_a_call_that_keeps_the_gil_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PATIENCE_S", 0.5)
    keeps = ctypes.PyDLL(None).usleep
    assert not others_run(lambda: keeps(5000))
    releases = ctypes.CDLL(None).usleep
    monkeypatch.undo()
    assert others_run(lambda: releases(5000))
