"""The worker processes in which recovering calls run: one for each device, kept warm between calls.

A worker writes the id of each kernel that it begins into shared memory, so the parent knows it after a crash.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from tritmark.harness.errors import BadEnvironmentError, NoCompatibleKernelError, UsageError
from tritmark.harness.numbered import numbered
from tritmark.harness.registry import Registry
from tritmark.harness.spec import Axes, Variant
from tritmark.harness.worker.process import START_S, WorkerProcess
from tritmark.harness.worker.serve import TaskRequest
from tritmark.harness.worker.shared import SharedBlock

SECONDS = "TRITMARK_RECOVER_SECONDS"
"""Environment variable: time limit of one attempt of a recovering call, seconds."""
_SECONDS = 120.0
"""The default. A first call on a GPU compiles its kernels, which takes tens of seconds."""
_NOTE = 4096


class LowerKernel(NamedTuple):
    """A kernel that can take the place of another."""

    id: str
    plain: bool
    """Whether it needs no feature of the device."""

    @property
    def name(self) -> str:
        """The name by which callers force it."""
        return self.id.split("/", 4)[-1]


def seconds() -> float:
    """The time limit of an attempt. Raises UsageError for an invalid TRITMARK_RECOVER_SECONDS."""
    reported = os.environ.get(SECONDS, "").strip()
    try:
        found = float(reported or _SECONDS)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise UsageError(f"{SECONDS} is {reported!r}; legal: a number of seconds above 0")
    return found


class BegunKernel:
    """The kernel that a worker began last, and those that could take its place, in memory that it shares with its
    parent."""

    def __init__(self, block: SharedBlock) -> None:
        self.block = block

    def write(self, kernel: str, lower: Iterable[LowerKernel] = ()) -> None:
        """In the worker, before a kernel is bound; in the parent, "" before a call."""
        lines = [kernel, *(f"{'+' if each.plain else '-'}{each.id}" for each in lower)]
        text = "\n".join(lines).encode()[: _NOTE - 1]
        self.block.bytes[: len(text)] = np.frombuffer(text, np.uint8)
        self.block.bytes[len(text)] = 0

    def read(self) -> tuple[str, tuple[LowerKernel, ...]]:
        """In the parent. A line that did not fit is left out."""
        text = self.block.bytes.tobytes().split(b"\0", 1)[0]
        lines = (text if len(text) < _NOTE - 1 else text.rpartition(b"\n")[0]).decode("utf-8", "replace").split("\n")
        return lines[0], tuple(LowerKernel(each[1:], each[0] == "+") for each in lines[1:] if each)


class Supervised:
    """The worker of one device. Not thread-safe: hold its `lock`, which all names of the device share."""

    def __init__(self, registry: Registry, device: str, begin: Callable[..., Any], lock: Any) -> None:
        self._registry = registry
        self._begin = begin
        self.device = device
        self.lock = lock
        self.process: WorkerProcess | None = None
        self.begun = BegunKernel(SharedBlock(_NOTE))
        self._variables: dict[str, str] = {}
        self._in_call = False
        self.leaving = False
        """The program is ending."""
        self.state: dict[Any, Any] = {}
        """What the parent knows about the process; a new process begins with an empty one."""

    @property
    def pid(self) -> int | None:
        """Id of the process; None if there is none."""
        process = self.process
        return None if process is None or not process.alive or process.exitcode is not None else process.pid

    @contextmanager
    def turn(self, op: str) -> Iterator[None]:
        """One call. Raises UsageError inside another call of this thread, whose reply it would take."""
        if self._in_call:
            raise UsageError(
                f"{op}: a recovering call began inside another one on {self.device}, such as in a signal handler; "
                'legal: a call after that one, or on_error="raise"'
            )
        self._in_call = True
        try:
            yield
        finally:
            self._in_call = False

    def start(self) -> None:
        """Start the process, unless it runs with the current TRITMARK_* variables. Raises BadEnvironmentError if this
        session allows none."""
        variables = {name: value for name, value in os.environ.items() if name.startswith("TRITMARK_")}
        self.must_stay()
        if self.pid is not None and variables == self._variables:
            return
        self.end()
        self._variables = variables
        device = self._registry.devices[self.device]
        any_kernel = next(
            (
                each.id
                for each in self._registry.variants
                if each.key.device == self.device and not each.tier.named_only
            ),
            None,
        )
        if any_kernel is None:
            raise NoCompatibleKernelError(request=f"recovering calls on {self.device}", candidates=[])
        self.process = WorkerProcess(
            (), any_kernel, memory_bytes=0, limit_address_space=False, environment=device.environment()
        )
        self.process.call("start", START_S, TaskRequest(self._begin, (self.begun.block,), (), ()))

    def call(self, what: str, task: Callable[..., Any], *args: Any) -> Any:
        """The result of `task(site, *args)` in the process. Raises the errors of WorkerProcess.call."""
        assert self.process is not None
        return self.process.call(what, seconds(), TaskRequest(task, args, (), ()))

    def must_stay(self) -> None:
        """Raise BadEnvironmentError if the program is ending, which ended the process: no kernel is to blame."""
        if self.leaving:
            raise BadEnvironmentError(
                "the program is ending, and with it the worker of a recovering call",
                next_step="join the thread before the program ends",
            )

    def leave(self) -> None:
        """At exit: end the process, without waiting for a call of another thread."""
        self.leaving = True
        if self.lock.acquire(blocking=False):
            try:
                self.end()
            finally:
                self.lock.release()
        elif (process := self.process) is not None:
            with suppress(OSError, ValueError):
                process.kill()

    def end(self) -> None:
        """End the process; the next call starts a new one."""
        process, self.process = self.process, None
        self.state = {}
        if process is not None:
            with suppress(OSError, ValueError):
                process.close()


class Supervisor:
    """The workers of this process. `begin(site, block)` prepares a new one."""

    def __init__(self, registry: Registry, begin: Callable[..., Any]) -> None:
        self._registry = registry
        self._begin = begin
        self._lock = RLock()
        self._each: dict[str, Supervised] = {}
        self._locks: dict[tuple[str, int], Any] = {}
        self._owner = os.getpid()

    def of(self, device: str) -> Supervised:
        """The worker of that device. Raises NoCompatibleKernelError for an unknown device."""
        with self._lock:
            if self._owner != os.getpid():  # forked: the processes are the parent's
                self._each, self._locks, self._owner = {}, {}, os.getpid()
            if device not in self._each:
                self._registry.device(device, f"a recovering call on {device!r}")
                lock = self._locks.setdefault(_place(device), RLock())
                self._each[device] = Supervised(self._registry, device, self._begin, lock)
            return self._each[device]

    def end_all_of(self, device: str) -> tuple[str, ...]:
        """End the workers of a device under all its names (such as without a number and with 0). Returns the
        names of those that ran."""
        with self._lock:
            same = [each for name, each in self._each.items() if _place(name) == _place(device)]
        ended = []
        for each in same:
            with each.lock:
                if each.pid is not None:
                    ended.append(each.device)
                each.end()
        return tuple(ended)

    def close(self) -> None:
        """End all."""
        with self._lock:
            each, self._each = list(self._each.values()), {}
        if self._owner == os.getpid():
            for worker in each:
                with worker.lock:
                    worker.end()

    def leave(self) -> None:
        """End all at exit, also those in a call of another thread."""
        if self._owner == os.getpid():
            for worker in list(self._each.values()):
                worker.leave()


def _place(name: str) -> tuple[str, int]:
    return numbered(name) or (name, 0)


def lower_kernels(registry: Registry, variant: Variant, axes: Axes) -> tuple[LowerKernel, ...]:
    """The kernels that take these axes on this machine and have a lower tier or rank, best first."""
    found = [
        each
        for each, refusal in registry.candidates(variant.key, axes)
        if refusal is None
        and not each.tier.named_only
        and each.id != variant.id
        and (variant.tier.named_only or each.precedence < variant.precedence)
    ]
    found.sort(key=lambda each: each.precedence, reverse=True)
    return tuple(LowerKernel(each.id, not each.features) for each in found)
