"""Ctrl-C, which Linux sends to every process of a terminal at once: when this process meets it, and that those which it
starts never do."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A Ctrl-C that comes meanwhile is met when the block has ended, and processes that it starts begin with SIGINT
    blocked.

    Half a request to start a process ends the one that was begun with a traceback, and a pool of processes whose
    shutdown was cut short says at exit what it did not put away.
    """
    handler = signal.getsignal(signal.SIGINT)
    came: list[tuple[int, FrameType | None]] = []
    # What is blocked here another thread may be given, and Python's handler runs in the main thread all the same.
    deferred = callable(handler) and threading.current_thread() is threading.main_thread()
    if deferred:
        signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        kept = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            # What was blocked comes here, and is noted like the others.
            signal.pthread_sigmask(signal.SIG_SETMASK, kept)
    finally:
        if deferred:
            signal.signal(signal.SIGINT, handler)
        if came and callable(handler):
            handler(*came[0])


def end_pool(pool: ProcessPoolExecutor, *, at_once: bool) -> None:
    """Shut a pool down, uninterrupted: when its processes have done what they are at, or `at_once`, which kills them.

    A broken pool has to be ended at once: it ends the processes that it has at that moment and waits for all, and one
    that was being started then would never end.
    """
    with uninterrupted():
        for process in list((pool._processes or {}).values()) if at_once else ():
            with suppress(ValueError):  # it was waited for, and is closed
                process.kill()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """The first Ctrl-C raises KeyboardInterrupt, and those after it do nothing, so that what was begun is ended in
    good order, up to the end of the process. Where SIGINT is ignored, as in the background of a shell, it stays so."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _first)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _first:
            signal.signal(signal.SIGINT, handler)


def _first(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    signal.default_int_handler(number, frame)
