"""The workers of one invocation: one process per variant, kept for all its Runs."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from tritmark.harness import judged
from tritmark.harness.errors import BadEnvironmentError
from tritmark.harness.providers import Installed
from tritmark.harness.spec import Device, HeldTo, Tier, Variant
from tritmark.harness.worker import remote
from tritmark.harness.worker.process import WorkerProcess
from tritmark.harness.worker.serve import TaskRequest
from tritmark.harness.worker.site import Site

if TYPE_CHECKING:
    from tritmark.harness.providers import Candidate

MOST = 8
"""The most idle processes that are kept for further Runs of their variants."""

MOST_ON_DEVICES = 3
"""The same for a device with its own memory, where each process holds a context."""


class Worker(Protocol):
    """Runs one variant, in a process of its own or in this one."""

    @property
    def variant(self) -> Variant:
        """The variant; it binds and runs in the worker."""

    @property
    def device(self) -> Device:
        """The device, with the worker's memory and proofs."""

    @property
    def pid(self) -> int | None:
        """Process id; None if there is no process, or on a device with its own memory, where kernels do not run in the
        process."""

    def begin(self) -> None:
        """Start the process if there is none."""

    def call(self, what: str, task: Callable[..., Any], *args: Any, timeout_s: float | None = None) -> Any:
        """Return the result of `task(site, *args)`. `what` names the action in error messages.

        Raises CandidateError if the task raised, WorkerError if the process died, timed out or took too much memory.
        """


class Local:
    """Runs everything in this process, so a crash of a candidate ends the harness."""

    def __init__(self, installed: Installed, variant: Variant) -> None:
        self._site = Site(installed, variant)
        self.variant = variant
        self.device = self._site.device
        self.pid = os.getpid() if self.device.memory is None else None

    def begin(self) -> None:
        """Nothing to start."""

    def call(self, what: str, task: Callable[..., Any], *args: Any, timeout_s: float | None = None) -> Any:
        """See Worker. Exceptions are not converted, and there is no time limit."""
        with judged.judging():
            return task(self._site, *args)


class Isolated:
    """Runs a variant in its own process, which starts on first use and again after it died."""

    def __init__(self, workers: Workers, variant: Variant) -> None:
        self._workers = workers
        self._real = variant
        self.process: WorkerProcess | None = None
        """The current process."""
        self._numbers = 0
        self._dropped: tuple[list[int], list[int]] = ([], [])
        self.variant = remote.variant(variant, self)
        self.device = remote.device(workers.installed.registry.devices[variant.key.device], self)

    @property
    def pid(self) -> int | None:
        """See Worker."""
        own_memory = self._workers.installed.registry.devices[self._real.key.device].memory is not None
        return None if self.process is None or own_memory else self.process.pid

    @property
    def alive(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.alive

    def number(self) -> int:
        """A new number for a buffer or a launch."""
        self._numbers += 1
        return self._numbers

    def drop_buffer(self, number: int) -> None:
        """The parent no longer needs this buffer."""
        self._dropped[0].append(number)

    def drop_launch(self, number: int) -> None:
        """The parent no longer needs this launch."""
        self._dropped[1].append(number)

    def begin(self) -> None:
        """See Worker."""
        self._begun()

    def call(self, what: str, task: Callable[..., Any], *args: Any, timeout_s: float | None = None) -> Any:
        """See Worker."""
        self._workers.must_be_fair()
        try:
            process = self._begun()
            dropped, self._dropped = self._dropped, ([], [])
            return process.call(
                what,
                timeout_s or self._workers.timeout_s,
                TaskRequest(task, args, tuple(dropped[0]), tuple(dropped[1])),
            )
        except BadEnvironmentError as error:
            self._workers.at_fault = error
            raise

    def _begun(self) -> WorkerProcess:
        if self.process is None or not self.process.alive:
            workers = self._workers
            device = workers.installed.registry.devices[self._real.key.device]
            own_memory = device.memory is not None
            self.process = WorkerProcess(
                workers.candidates,
                self._real.id,
                memory_bytes=0 if own_memory else workers.memory_bytes,
                # A GPU driver reserves more address space than any machine has memory. So do the threads of a
                # third-party library on many cores.
                limit_address_space=not own_memory and self._real.tier is not Tier.PEER,
                environment=device.environment(),
                held_to=workers.held_to,
            )
        return self.process

    def close(self) -> None:
        """End the process."""
        process, self.process = self.process, None
        if process is not None:
            process.close()


class Workers(AbstractContextManager["Workers"]):
    """One worker for each variant.

    `timeout_s`: time limit of one call of a candidate, seconds. `memory_bytes`: memory limit of a candidate on the
    host, beyond the memory of its process at start; 0: no limit. `held_to`: the limit of all processes; see
    spec.Masking.
    """

    def __init__(
        self,
        installed: Installed,
        candidates: Sequence[Candidate] = (),
        *,
        isolated: bool = True,
        timeout_s: float = 120.0,
        memory_bytes: int = 0,
        held_to: HeldTo | None = None,
    ) -> None:
        self.installed = installed
        self.candidates = tuple(candidates)
        self.isolated = isolated
        self.timeout_s = timeout_s
        self.memory_bytes = memory_bytes
        self.held_to = held_to
        self._alive: OrderedDict[str, Isolated] = OrderedDict()
        self.at_fault: BadEnvironmentError | None = None
        """The fault of the session that kept a candidate from running. Verdicts after it do not count, even if a caller
        suppressed the exception."""

    def of(self, variant: Variant) -> Worker:
        """The worker of that variant. Only the most recently used workers keep their processes."""
        if not self.isolated:
            return Local(self.installed, variant)
        found = self._alive.pop(variant.id, None) or Isolated(self, variant)
        self._alive[variant.id] = found
        on_device = self.installed.registry.devices[variant.key.device].memory is not None
        while len(self._alive) > (MOST_ON_DEVICES if on_device else MOST):
            _, oldest = self._alive.popitem(last=False)
            oldest.close()
        return found

    def held(self, to: HeldTo) -> Workers:
        """New workers, with all processes limited to a step of the device's Masking."""
        return Workers(
            self.installed,
            self.candidates,
            isolated=self.isolated,
            timeout_s=self.timeout_s,
            memory_bytes=self.memory_bytes,
            held_to=to,
        )

    def renew(self, variant: Variant) -> None:
        """End that variant's process; the next call starts a new one."""
        known = self._alive.pop(variant.id, None)
        if known is not None:
            known.close()

    def must_be_fair(self) -> None:
        """Raise BadEnvironmentError if the session was at fault. Call it before a verdict is kept, and at the end."""
        if self.at_fault is not None:
            raise self.at_fault

    def close(self) -> None:
        """End all processes."""
        while self._alive:
            self._alive.popitem()[1].close()

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        self.close()
        if kind is None or issubclass(kind, Exception):  # not after an interruption
            self.must_be_fair()
