"""Collects the receipts of public functions: `receipts` for users, and what the functions call.

While any thread collects receipts, hook.active is not None. So a call that collects none costs nothing more. The code
that ran a kernel calls `collect`, and a call for which `collects` is true uses no plan, because plans keep no receipts.
Imports nothing heavy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from tritmark.harness.monitor import hook

if TYPE_CHECKING:
    from tritmark.harness.monitor.hook import KernelRan, Watcher
    from tritmark.harness.spec import Receipt


class _Unwatched:
    """In hook.active while receipts are collected and no monitor is active."""

    every = 1

    def begin(self) -> None:
        """None: this call is not counted."""

    def call(self, thread: Any, entry: str, function: Callable[..., Any], *_: Any) -> Any:
        """Never called, since `begin` returns None."""
        raise AssertionError(entry)

    def end(self, thread: Any, entry: str, ran: KernelRan | None) -> None:
        """Never called, see `call`."""
        raise AssertionError(entry)

    def ran(self, ran: KernelRan) -> None:
        """Nothing counts it."""


class _Contexts:
    """The `receipts` contexts of all threads. It decides on hook.active, together with the monitor."""

    def __init__(self) -> None:
        self._count, self._lock = 0, Lock()

    def watch_with(self, watcher: Watcher | None) -> None:
        """See the function."""
        with self._lock:
            hook.active = _UNWATCHED if watcher is None and self._count else watcher

    def add(self, count: int) -> None:
        """One context more, or less."""
        with self._lock:
            self._count += count
            if hook.active is None or hook.active is _UNWATCHED:
                hook.active = _UNWATCHED if self._count else None

    def forked(self) -> None:
        """In a forked child only this thread is left. Another one may have held the lock."""
        self._count, self._lock = 0, Lock()
        self.add(len(_lists.get()))


_UNWATCHED = _Unwatched()
_CONTEXTS = _Contexts()
_lists: ContextVar[tuple[list[Receipt], ...]] = ContextVar("tritmark_receipts", default=())
"""The lists of this thread's `receipts` contexts, the innermost last."""
_note: ContextVar[str] = ContextVar("tritmark_receipt_note", default="")


def watch_with(watcher: Watcher | None) -> None:
    """From now on `watcher` counts calls; None: nothing counts them."""
    _CONTEXTS.watch_with(watcher)


@contextmanager
def receipts() -> Iterator[list[Receipt]]:
    """A context that collects the receipt of each kernel that the public functions run in this thread, in order.

    A call may run several kernels, and then adds several receipts. A call that raises an error adds those of kernels
    that succeeded. Inside, calls find no plan, so small ones take longer; kernels and results are the same. Contexts
    may be nested: a receipt goes to each. Calls in other threads, except those in which a function shares out its work
    on the CPU, and PyTorch ops on a GPU, which do not wait for their kernels, add none.
    """
    made: list[Receipt] = []
    before = _lists.set((*_lists.get(), made))
    _CONTEXTS.add(1)
    try:
        yield made
    finally:
        _lists.reset(before)
        _CONTEXTS.add(-1)


def collects() -> bool:
    """Whether this thread collects receipts. Ask it only if hook.active is not None."""
    return bool(_lists.get())


def collect(make: Callable[[], Receipt]) -> None:
    """Add the receipt of a kernel that ran, if this thread collects receipts. Call it only if hook.active is not
    None."""
    lists = _lists.get()
    if lists:
        made, note = make(), _note.get()
        made = replace(made, note="; ".join(filter(None, (note, made.note)))) if note else made
        for each in lists:
            each.append(made)


@contextmanager
def noted(note: str) -> Iterator[None]:
    """Inside, the notes of this thread's collected receipts begin with `note`."""
    before = _note.set(note)
    try:
        yield
    finally:
        _note.reset(before)


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside, this thread's calls add no receipts, and find plans."""
    before = _lists.set(())
    try:
        yield
    finally:
        _lists.reset(before)


os.register_at_fork(after_in_child=_CONTEXTS.forked)
