"""The public functions for Python's `async`: each runs in a thread of a small executor, and the event loop goes on
(docs/guides/async.md).

A thread waits for each call because a call does more than launch: it checks arguments, copies, waits, reads what the
kernel reported, and copies back. Native kernels, copies and waits for a GPU release Python's lock meanwhile. A callback
of the driver (cuLaunchHostFunc) may not call the driver, so the rest of the call would need a thread as well. Polling
of events costs the loop time in each turn. On CUDA the launches of each call have a stream of their own.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import cache, partial, wraps
from typing import Any, Generic, ParamSpec, TypeVar

from tritmark import kernels
from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.dispatch import offload

P = ParamSpec("P")
R = TypeVar("R")

CALLS = 4
"""Calls that run at the same time, at most, over all event loops; further calls wait in order. On a GPU one copies
there, one computes and one copies back, while Python prepares another. On the CPU calls share the same cores."""


async def call(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `function(*args, **kwargs)`, any function that computes with kernels, such as a QuantizedLinear, in a thread.
    Returns its result and raises its errors.

    The await ends when no kernel of the call runs any more, also if the task is cancelled: a call that waits for a
    thread then never begins, and one that runs is completed before CancelledError is raised. So its arrays are not in
    use after the await. If the call began, `out=` is then undefined. If it also failed, its error is the `__cause__` of
    CancelledError.

    Do not change arguments while the call is awaited. Calls at the same time need an `out=` each. `function` must not
    wait for another awaited call, which may need its thread. Raises InvalidArgumentError if it is not callable or is a
    coroutine function.
    """
    if not callable(function) or inspect.iscoroutinefunction(function):
        found = f"the coroutine function {function.__name__}" if callable(function) else f"a {type(function).__name__}"
        legal = "a function that returns its result; await a coroutine function itself"
        raise InvalidArgumentError(op="aio.call", argument="function", found=found, legal=legal)
    context, loop = copy_context(), asyncio.get_running_loop()
    job = _Job(partial(function, *args, **kwargs), context, loop)
    running = _executor().submit(job)
    ended = loop.create_future()
    running.add_done_callback(partial(_report, loop, ended))
    cancelled: asyncio.CancelledError | None = None
    try:
        while not ended.done():
            try:
                await asyncio.wait((ended,))
            except asyncio.CancelledError as problem:
                if running.cancel():
                    raise
                cancelled = problem
    finally:  # also if the loop is closed and this coroutine with it
        if running.cancel():
            job.drop()
    try:
        if cancelled is not None:
            raise cancelled from running.exception()
        return running.result()
    finally:
        del running, cancelled  # an error's traceback holds this frame, and these hold the error
        _take_over(context)


def awaitable(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """The function as a coroutine function with the same parameters: see call."""

    @wraps(function)
    async def made(*args: P.args, **kwargs: P.kwargs) -> R:
        return await call(function, *args, **kwargs)

    made.__module__ = __name__
    made.__doc__ = f"`tritmark.kernels.{function.__name__}` as an awaitable call: see `call`."
    return made


class _Job(Generic[R]):
    """A call. It holds its arguments only until it ends or is dropped; the executor may hold the job longer."""

    def __init__(self, function: Callable[[], R], context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._function: Callable[[], R] | None = function
        self._context, self._loop = context, loop

    def __call__(self) -> R:
        function, self._function = self._function, None
        assert function is not None  # only a job that never begins is dropped
        if self._loop.is_closed():  # no task waits for it
            raise asyncio.CancelledError
        return self._context.run(_beside_others, function)

    def drop(self) -> None:
        """Release the arguments of a call that never begins."""
        self._function = None


def _beside_others(function: Callable[[], R]) -> R:
    with offload.apart():
        return function()


def _report(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None], _: Future[Any]) -> None:
    """Wake the task from the thread of the call."""
    with suppress(RuntimeError):  # the loop was closed, so no task waits
        loop.call_soon_threadsafe(_set, ended)


def _set(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _take_over(context: Context) -> None:
    """Set what the call set in its copy of the context, such as last_recoveries(), in the task's."""
    for variable, value in context.items():
        if variable.get(None) is not value:
            variable.set(value)


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(CALLS, "tritmark-aio")


os.register_at_fork(after_in_child=_executor.cache_clear)  # the child has none of the threads

# The public functions that run kernels or pack weights. A line each, because type checkers read no loop.
absmean_quantize = awaitable(kernels.absmean_quantize)
activation_quantize = awaitable(kernels.activation_quantize)
float_narrow = awaitable(kernels.float_narrow)
float_widen = awaitable(kernels.float_widen)
i2s_dequantize = awaitable(kernels.i2s_dequantize)
i2s_quantize = awaitable(kernels.i2s_quantize)
matmul = awaitable(kernels.matmul)
matmul_batch = awaitable(kernels.matmul_batch)
pack_codes = awaitable(kernels.pack_codes)
pack_weights = awaitable(kernels.pack_weights)
spread = awaitable(kernels.spread)
ternary_linear = awaitable(kernels.ternary_linear)
ternary_matmul = awaitable(kernels.ternary_matmul)
ternary_matmul_a16 = awaitable(kernels.ternary_matmul_a16)
ternary_matmul_batch = awaitable(kernels.ternary_matmul_batch)
ternary_quantize = awaitable(kernels.ternary_quantize)
unpack_codes = awaitable(kernels.unpack_codes)
warm_up = awaitable(kernels.warm_up)

__all__ = [
    "absmean_quantize",
    "activation_quantize",
    "awaitable",
    "call",
    "float_narrow",
    "float_widen",
    "i2s_dequantize",
    "i2s_quantize",
    "matmul",
    "matmul_batch",
    "pack_codes",
    "pack_weights",
    "spread",
    "ternary_linear",
    "ternary_matmul",
    "ternary_matmul_a16",
    "ternary_matmul_batch",
    "ternary_quantize",
    "unpack_codes",
    "warm_up",
]
