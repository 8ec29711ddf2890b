"""Awaitable calls: the same results, overlap, a responsive event loop, and cancellation that leaves nothing in use."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import inspect
import os
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from failing_kernels import KEY, OwnError, correct, failing, reference
from held_kernels import NAME, SECONDS, Held, before, held
from own_registry import registered

from tritmark import kernels
from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.kernels import QuantizedLinear, aio
from tritmark.kernels.dispatch import offload

AT_ONCE = {"bind_linears", "check_memory_health", "gather_weights", "performance_stats", "receipts", "register"}
"""Public functions that only read or set a value, prepare later calls, or are a context."""
X = np.random.default_rng(0).standard_normal(4096, dtype=np.float32)
CODES = np.random.default_rng(1).integers(-1, 2, (64, 256), dtype=np.int8)
ROWS = X[:512].reshape(2, 256)

Made = Coroutine[Any, Any, Any]


def run(main: Made, *, debug: bool = True) -> Any:
    """Run in a new event loop. What would only be logged, such as an exception in a callback, is an error."""
    logged: list[Any] = []

    async def watched() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda _, problem: logged.append(problem))
        return await asyncio.wait_for(main, SECONDS)

    result = asyncio.run(watched(), debug=debug)
    assert not logged
    return result


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.001)


@pytest.fixture
def kernel() -> Iterator[Held]:
    """The kernel `held` of i2s_quantize. At the end of a test no call may be left."""
    made = Held()
    with registered(held(KEY, "scalar", made)):
        yield made
        made.release()
        assert made.running == 0


def holding(x: Any = X, **more: Any) -> Made:
    return aio.i2s_quantize(x, 0.5, variant=NAME, **more)


def test_every_public_function_that_computes_has_one() -> None:
    functions = {name for name in kernels.__all__ if inspect.isfunction(getattr(kernels, name))}
    assert set(aio.__all__) - {"awaitable", "call"} == functions - AT_ONCE
    for name in functions - AT_ONCE:
        made = getattr(aio, name)
        assert inspect.iscoroutinefunction(made)
        assert inspect.signature(made) == inspect.signature(getattr(kernels, name))
        assert (made.__module__, made.__name__) == ("tritmark.kernels.aio", name)


def test_results_are_those_of_plain_calls() -> None:
    async def main() -> None:
        q: npt.NDArray[np.int8]
        q, ternary, packed, rows, weights = await asyncio.gather(
            aio.i2s_quantize(X, 0.5),
            aio.ternary_quantize(X, 128),
            aio.ternary_quantize(X, 128, packed=True),
            aio.activation_quantize(ROWS),
            aio.pack_weights(CODES, 0.5),
        )
        assert np.array_equal(q, kernels.i2s_quantize(X, 0.5))
        assert np.array_equal(ternary.codes, packed.unpack())
        product = await aio.ternary_matmul(rows.q, weights, act_scale=rows.scale)
        layer = QuantizedLinear(weights)
        assert np.array_equal(product, layer(ROWS))
        bound = layer.bind(ROWS)
        assert np.array_equal(await aio.call(bound.run), product)
        every = await asyncio.gather(*(aio.call(layer, ROWS) for _ in range(50)))
        assert all(np.array_equal(each, product) for each in every)
        out = np.empty_like(q)
        assert await aio.i2s_quantize(X, 0.5, out=out) is out

    run(main())


def meet(both: threading.Barrier, seconds: float) -> None:
    both.wait(seconds)


def test_calls_overlap() -> None:
    """Each kernel waits until both run."""
    both = threading.Barrier(2)
    meets = before(KEY, "scalar", "meets", lambda _: meet(both, SECONDS))

    async def main() -> None:
        await asyncio.gather(*(aio.i2s_quantize(X, 0.5, variant="meets") for _ in range(2)))

    with registered(meets):
        run(main())


def test_without_overlap_they_would_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)
    meets = before(KEY, "scalar", "meets", lambda _: meet(both, 0.1))
    with registered(meets), ThreadPoolExecutor(1) as alone:
        monkeypatch.setattr(aio, "_executor", lambda: alone)
        with pytest.raises(threading.BrokenBarrierError):
            run(asyncio.wait_for(aio.i2s_quantize(X, 0.5, variant="meets"), SECONDS))


def test_few_run_at_the_same_time_and_the_rest_begin_in_order(kernel: Held) -> None:
    async def main() -> None:
        inputs = [X[: 64 + number] for number in range(3 * aio.CALLS)]
        calls = asyncio.gather(*map(holding, inputs))
        await until(lambda: kernel.running == aio.CALLS)
        await asyncio.sleep(0.05)
        assert len(kernel.begun) == aio.CALLS
        kernel.release()
        results = await calls
        assert [each.size for each in results] == [each.size for each in inputs]
        assert kernel.most <= aio.CALLS
        began = [each["x"].size for each in kernel.begun]
        # Those that begin together may report in any order.
        assert sorted(began[: aio.CALLS]) == [each.size for each in inputs[: aio.CALLS]]
        assert all(abs(place - (size - 64)) < aio.CALLS for place, size in enumerate(began))

    run(main())


async def turns_beside(call: Callable[[], Any]) -> int:
    """Turns of the event loop in the middle half of the time of a call."""
    times: list[float] = []

    def timed() -> None:
        times.append(perf_counter())
        call()
        times.append(perf_counter())

    task, turns = asyncio.create_task(aio.call(timed)), []
    while not task.done():
        await asyncio.sleep(0)
        turns.append(perf_counter())
    begin, end = times
    quarter = (end - begin) / 4
    return sum(begin + quarter < each < end - quarter for each in turns)


def test_the_loop_goes_on_beside_a_kernel() -> None:
    large, out = np.ones(1 << 25, np.float32), np.empty(1 << 25, np.int8)
    launch = correct(KEY, "scalar").bind({"x": large, "scale": np.float32(0.5)}, {"q": out}, {"n": large.size}, 1)
    assert run(turns_beside(launch.run)) > 5


def test_a_kernel_that_keeps_pythons_lock_would_stop_it() -> None:
    assert run(turns_beside(lambda: ctypes.PyDLL(None).usleep(200_000))) == 0


def test_errors_arrive_at_the_await() -> None:
    async def main() -> None:
        with pytest.raises(InvalidArgumentError) as refused:
            await aio.i2s_quantize(X, -1.0)
        assert refused.value.argument == "scale"
        with pytest.raises(NoCompatibleKernelError):
            await aio.i2s_quantize(X, 0.5, device="none")
        with pytest.raises(InvalidArgumentError, match="nan at index 3"):
            await aio.i2s_quantize(np.array([0, 1, 2, np.nan], np.float32), 0.5)
        with pytest.raises(OwnError):
            await aio.i2s_quantize(X, 0.5, variant="own")
        every = await asyncio.gather(
            *(aio.i2s_quantize(X, 0.5, variant=name) for name in ("own", "memory", "scalar")), return_exceptions=True
        )
        assert [type(each) for each in every] == [OwnError, MemoryError, np.ndarray]

    with registered(failing("own"), failing("memory")):
        run(main())


@pytest.mark.parametrize("function", [None, 3, "i2s_quantize", aio.i2s_quantize, aio.call])
def test_what_cannot_be_called_is_refused(function: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="function"):
        run(aio.call(function))


def test_an_errors_arrays_end_with_it() -> None:
    async def main() -> weakref.ref[Any]:
        x = X.copy()
        with pytest.raises(InvalidArgumentError):
            await aio.i2s_quantize(x, -1.0)
        return weakref.ref(x)

    gc.collect()
    gc.disable()  # no cycle may keep them
    try:
        kept = run(main())
        assert kept() is None
    finally:
        gc.enable()


# Cancellation


def test_cancelled_before_its_first_step(kernel: Held) -> None:
    async def main() -> None:
        task = asyncio.create_task(holding())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not kernel.begun

    run(main())


def test_cancelled_in_the_queue(kernel: Held) -> None:
    """It ends at once, never begins, and releases its arrays while the others still run."""

    async def main() -> None:
        others = asyncio.gather(*(holding() for _ in range(aio.CALLS)))
        await until(lambda: kernel.running == aio.CALLS)
        x = X.copy()
        kept = weakref.ref(x)
        task = asyncio.create_task(holding(x))
        del x
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        await asyncio.sleep(0)  # the loop's last turn still has the task
        assert kept() is None
        assert kernel.running == aio.CALLS
        kernel.release()
        await others
        await aio.i2s_quantize(X, 0.5)  # behind what is left of it
        assert len(kernel.begun) == aio.CALLS

    run(main())


@pytest.mark.parametrize("times", [1, 3])
def test_cancelled_while_it_runs(kernel: Held, times: int) -> None:
    """The await ends after the kernel: nothing writes to `out` later."""

    async def main() -> None:
        out = np.full(X.shape, 7, np.int8)
        task = asyncio.create_task(holding(out=out))
        await until(lambda: kernel.running == 1)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.01)
            assert not task.done()
        assert (out == 7).all()
        kernel.release()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert kernel.running == 0
        assert np.array_equal(out, reference(X, 0.5))

    run(main())


def test_an_await_that_ended_early_would_be_noticed(kernel: Held) -> None:
    """asyncio.to_thread leaves the kernel running, and it writes to `out` after the await."""

    async def main() -> None:
        out = np.full(X.shape, 7, np.int8)
        task = asyncio.create_task(asyncio.to_thread(kernels.i2s_quantize, X, 0.5, variant=NAME, out=out))
        await until(lambda: kernel.running == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert kernel.running == 1
        kernel.release()
        await until(lambda: kernel.running == 0)

    run(main())


def test_cancelled_after_it_ended() -> None:
    async def main() -> None:
        ended = threading.Event()
        task = asyncio.create_task(aio.call(ended.set))
        await asyncio.sleep(0)
        assert ended.wait(SECONDS)  # the loop has no turn in between
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_a_cancelled_call_that_failed_has_its_error_as_cause(kernel: Held) -> None:
    def fail() -> None:
        kernels.i2s_quantize(X, 0.5, variant=NAME)
        raise OwnError("broken")

    async def main() -> None:
        task = asyncio.create_task(aio.call(fail))
        await until(lambda: kernel.running == 1)
        task.cancel()
        await asyncio.sleep(0.01)
        kernel.release()
        with pytest.raises(asyncio.CancelledError) as ended:
            await task
        # A task makes a new CancelledError of the one that ended it.
        chain = ended.value, ended.value.__context__, ended.value.__cause__
        assert any(isinstance(each.__cause__, OwnError) for each in chain if each is not None)

    run(main())


def test_a_timeout_waits_for_the_kernel(kernel: Held) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(0.05, kernel.release)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await holding()
        assert (len(kernel.begun), kernel.running) == (1, 0)
        assert np.array_equal(await holding(), reference(X, 0.5))  # the task itself is not cancelled

    run(main())


def test_a_cancellation_beside_a_timeout_is_not_lost(kernel: Held) -> None:
    async def timed() -> None:
        async with asyncio.timeout(0.01):
            await holding()

    async def main() -> None:
        task = asyncio.create_task(timed())
        await until(lambda: kernel.running == 1)
        await asyncio.sleep(0.03)
        task.cancel()
        kernel.release()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_a_group_ends_after_all_of_its_kernels(kernel: Held) -> None:
    async def main() -> None:
        async def broken() -> None:
            await until(lambda: kernel.running == 2)
            asyncio.get_running_loop().call_later(0.02, kernel.release)
            await aio.i2s_quantize(X, 0.5, variant="own")

        calls: list[asyncio.Task[Any]] = []

        async def grouped() -> None:
            async with asyncio.TaskGroup() as group:
                calls.extend(group.create_task(holding()) for _ in range(2))
                group.create_task(broken())

        with pytest.raises(ExceptionGroup) as failed:
            await grouped()
        assert failed.group_contains(OwnError)
        assert [each.cancelled() for each in calls] == [True, True]
        assert (len(kernel.begun), kernel.running) == (2, 0)

    with registered(held(KEY, "scalar", kernel), failing("own")):
        run(main())


def test_a_thousand_random_cancellations_leave_nothing() -> None:
    draw, kept = random.Random(0), list[weakref.ref[Any]]()

    async def one() -> None:
        x = np.resize(X, draw.choice((100, 5_000, 50_000)))
        out = np.empty(x.shape, np.int8)
        kept.extend((weakref.ref(x), weakref.ref(out)))
        task = asyncio.create_task(aio.i2s_quantize(x, 0.5, out=out, threads=1))
        for _ in range(draw.choice((0, 1, 2, 5, 20))):
            await asyncio.sleep(0)
        if draw.random() < 0.8:
            task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            counts["cancelled"] += 1
        else:
            counts["done"] += 1
            assert np.array_equal(out, reference(x, 0.5))

    async def main() -> None:
        for _ in range(50):
            await asyncio.gather(*(one() for _ in range(20)))

    counts = {"cancelled": 0, "done": 0}
    run(main(), debug=False)
    assert sum(counts.values()) == 1000
    assert counts["cancelled"] > 100
    assert counts["done"] > 100
    gc.collect()
    assert [each() for each in kept if each() is not None] == []
    assert len(threads()) <= aio.CALLS
    run(aio.i2s_quantize(X, 0.5))
    assert aio._executor()._work_queue.empty()


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("tritmark-aio")]


# Event loops


def test_two_loops_in_two_threads_share_the_limit(kernel: Held) -> None:
    async def main() -> None:
        results = await asyncio.gather(*(holding(X[:size]) for size in range(100, 100 + aio.CALLS)))
        assert [each.size for each in results] == list(range(100, 100 + aio.CALLS))

    failed: list[BaseException] = []

    def loop() -> None:
        try:
            run(main())
        except BaseException as problem:
            failed.append(problem)

    both = [threading.Thread(target=loop) for _ in range(2)]
    for each in both:
        each.start()
    run(until(lambda: kernel.running == aio.CALLS))
    kernel.release()
    for each in both:
        each.join(SECONDS)
    assert not failed
    assert (len(kernel.begun), kernel.most) == (2 * aio.CALLS, aio.CALLS)


def test_the_end_of_asyncio_run_waits_for_kernels(kernel: Held) -> None:
    tasks = []

    async def main() -> None:
        tasks.append(asyncio.create_task(holding()))
        await until(lambda: kernel.running == 1)
        threading.Timer(0.05, kernel.release).start()

    run(main())
    assert tasks[0].cancelled()
    assert (len(kernel.begun), kernel.running) == (1, 0)


def test_a_loop_may_be_closed_while_a_kernel_runs(kernel: Held) -> None:
    """Its arrays live until the kernel ends; the call in the queue never begins."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # asyncio reports that tasks were destroyed
    x = X.copy()
    kept = weakref.ref(x)
    tasks = [loop.create_task(holding(x)) for _ in range(aio.CALLS + 1)]
    del x
    loop.run_until_complete(until(lambda: kernel.running == aio.CALLS))
    loop.close()
    del tasks
    gc.collect()
    assert kept() is not None
    kernel.release()
    assert np.array_equal(run(aio.i2s_quantize(X, 0.5)), reference(X, 0.5))
    run(until(lambda: kernel.running == 0))
    kernel.begun[:] = [{} for _ in kernel.begun]
    gc.collect()
    run(until(lambda: kept() is None))
    assert len(kernel.begun) == aio.CALLS


def test_a_forked_process_has_threads_of_its_own() -> None:
    script = """
import asyncio, os, sys
import numpy as np
from tritmark.kernels import aio

def computed():
    return int(asyncio.run(aio.i2s_quantize(np.ones(8, np.float32), 1.0)).sum())

assert computed() == 8
child = os.fork()
if not child:
    os._exit(computed())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=os.environ)
    assert (done.stdout, done.stderr) == ("8\n", "")


# Context variables

SET: ContextVar[str] = ContextVar("set", default="nothing")


def test_a_call_reads_and_sets_the_tasks_variables() -> None:
    """So last_recoveries() has the recoveries of an awaited call."""

    def exchange() -> str:
        found = SET.get()
        SET.set("by the call")
        return found

    def fail() -> None:
        SET.set("by a call that fails")
        raise OwnError("broken")

    async def main() -> None:
        with pytest.raises(OwnError):
            await aio.call(fail)
        assert SET.get() == "by a call that fails"
        SET.set("by the task")
        assert await aio.call(exchange) == "by the task"
        assert SET.get() == "by the call"
        task = asyncio.create_task(aio.call(SET.set, "in another task"))
        await task
        assert SET.get() == "by the call"

    run(main())
    assert SET.get() == "nothing"


def test_calls_run_apart_and_only_they() -> None:
    async def main() -> None:
        with offload.kept():
            found = await asyncio.gather(aio.call(offload.runs_apart), aio.call(offload.keeps))
            assert list(found) == [True, False]
            assert [offload.runs_apart(), offload.keeps()] == [False, True]

    run(main())
