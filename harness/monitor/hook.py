"""The one thing that a call checks: whether calls are watched, or receipts collected. Imports nothing heavy.

Functions that run kernels begin with

    watch = hook.active
    if watch is not None and (thread := watch.begin()) is not None:
        return watch.call(thread, name, function, args, kwargs)

and the code that chose the kernel reports it with `chosen` or `ran`. `active` is read once, because another thread may
end the monitor. The check of a global takes a few nanoseconds.

Receipts are collected behind the same check, see receipts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol


class KernelRan:
    """A kernel, its axes and its threads. Compared by identity, so that a look-up in a dict is quick."""

    __slots__ = ("asynchronous", "axes", "kernel", "simulated", "threads", "variant")

    def __init__(
        self,
        kernel: str,
        axes: Mapping[str, int],
        threads: int = 0,
        *,
        simulated: bool = False,
        asynchronous: bool = False,
    ) -> None:
        self.kernel = kernel
        """The id of the variant."""
        self.axes = tuple(axes.items())
        self.threads = threads
        """The thread limit of the call; 0 on a device with its own memory."""
        self.simulated = simulated
        """A simulator ran it, so its time means nothing."""
        self.asynchronous = asynchronous
        """The call returned before the kernel ended, so its time is that of the submission."""
        self.variant: Any = None
        """Kept where its address is a key."""


class Watcher(Protocol):
    """Counts calls."""

    every: int
    """One of so many calls is timed, at random. All are counted."""

    def begin(self) -> Any:
        """This thread's counts, for `call` or `end`, whose call begins now. None inside another call, which includes
        this one."""

    def call(
        self,
        thread: Any,
        entry: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Any,
        ran: KernelRan | None = None,
    ) -> Any:
        """Call the function, and count and time the call. `kwargs` may be None. `ran`: the kernel, unless the function
        reports another one. Exceptions are counted and pass through."""

    def end(self, thread: Any, entry: str, ran: KernelRan | None) -> None:
        """Count a call without inner calls, which ran this kernel and has returned."""

    def ran(self, ran: KernelRan) -> None:
        """The current call runs this kernel. If it runs several, the last one counts."""


VARIABLE = "TRITMARK_MONITOR"
"""Environment variable: "1" watches the program from the first import of tritmark.kernels on; the path of a file adds
the session to that database."""

active: Watcher | None = None
"""What counts calls; None if no monitor is active and no thread collects receipts."""

recorders: list[Callable[..., Watcher]] = []
"""Makes what counts calls, in native code; empty before tritmark.kernels is imported. See counters.Counters."""
_waiting: list[Callable[[], object]] = []
"""Monitors that began before tritmark.kernels was imported."""


def provide(factory: Callable[..., Watcher]) -> None:
    """The kernels bring what counts; monitors that wait for it begin."""
    recorders[:] = [factory]
    while _waiting:
        _waiting.pop()()


def when_provided(begin: Callable[[], object]) -> None:
    """Call `begin` now, or as soon as there is a recorder."""
    if recorders:
        begin()
    else:
        _waiting.append(begin)


def forget(begin: Callable[[], object] | None = None) -> None:
    """Do not wait for a recorder any more; None: all of them."""
    _waiting[:] = [each for each in _waiting if begin is not None and each != begin]


_MOST_KERNELS = 4096
_kernels: dict[tuple[Any, ...], KernelRan] = {}


def named(kernel: str, axes: Mapping[str, int], threads: int = 0, *, simulated: bool = False) -> KernelRan:
    """The KernelRan of a kernel that is no variant, the same one in each call."""
    key = (kernel, threads, simulated, *axes, *axes.values())
    return _kernels.get(key) or _keep(key, KernelRan(kernel, axes, threads, simulated=simulated))


def _keep(key: tuple[Any, ...], made: KernelRan) -> KernelRan:
    if len(_kernels) >= _MOST_KERNELS:
        _kernels.clear()
    _kernels[key] = made
    return made


def chosen(variant: Any, axes: Mapping[str, int], threads: int, simulated: bool) -> KernelRan:
    """The KernelRan of a variant, the same one in each call."""
    key = (id(variant), threads, simulated, *axes, *axes.values())
    found = _kernels.get(key)
    if found is None:
        found = _keep(key, KernelRan(variant.id, axes, threads, simulated=simulated))
        found.variant = variant
    return found
