"""Handling of Ctrl-C, which Linux sends to all processes of a terminal: when it interrupts this process, and why it
never interrupts processes that this one starts."""

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
    """Delay a Ctrl-C until the block ends, and start processes with SIGINT blocked.

    An interrupted start of a process would end that process with a traceback. A pool with an interrupted shutdown would
    report leftovers at exit.
    """
    handler = signal.getsignal(signal.SIGINT)
    came: list[tuple[int, FrameType | None]] = []
    # Linux may deliver the signal to another thread; Python's handler runs in the main thread in any case.
    deferred = callable(handler) and threading.current_thread() is threading.main_thread()
    if deferred:
        signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        kept = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            # A blocked signal is delivered here, and recorded like the others.
            signal.pthread_sigmask(signal.SIG_SETMASK, kept)
    finally:
        if deferred:
            signal.signal(signal.SIGINT, handler)
        if came and callable(handler):
            handler(*came[0])


def end_pool(pool: ProcessPoolExecutor, *, at_once: bool) -> None:
    """Shut a pool down, uninterrupted: after its processes finish their tasks, or `at_once`, which kills them.

    Use `at_once` for a broken pool. It kills its current processes and waits for all, and a process that was just being
    started would never end.
    """
    with uninterrupted():
        for process in list((pool._processes or {}).values()) if at_once else ():
            with suppress(ValueError):  # already closed
                process.kill()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """The first Ctrl-C raises KeyboardInterrupt. Later ones are ignored, so that the cleanup completes. If SIGINT is
    ignored already, as in the background of a shell, it stays ignored."""
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
