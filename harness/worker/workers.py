"""The workers of one invocation: a process for each variant, kept as long as its Runs go on."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

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
"""Processes that wait for further Runs of their variants."""

MOST_ON_DEVICES = 3
"""Of those on a device with a memory of its own: each holds a context there."""


class Worker(Protocol):
    """Where one variant runs."""

    @property
    def variant(self) -> Variant:
        """Binds and runs where the worker is."""

    @property
    def device(self) -> Device:
        """Its memory and proofs are the worker's."""

    @property
    def pid(self) -> int | None:
        """Number of the process; None where there is none, and on a device with a memory of its own, which does not
        work in a process."""

    def begin(self) -> None:
        """Begin the process where there is none, as the next call would."""

    def call(self, what: str, task: Callable[..., Any], *args: Any, timeout_s: float | None = None) -> Any:
        """The result of `task(site, *args)`; `what` says for messages what was being done.

        Raises CandidateError where it raised, and WorkerError where the process died, did not answer in time or took
        too much memory.
        """


class Local:
    """No process at all: everything runs here, and what crashes, crashes the harness."""

    def __init__(self, installed: Installed, variant: Variant) -> None:
        self._site = Site(installed, variant)
        self.variant = variant
        self.device = self._site.device
        self.pid = os.getpid() if self.device.memory is None else None

    def begin(self) -> None:
        """Nothing has to begin."""

    def call(self, what: str, task: Callable[..., Any], *args: Any, timeout_s: float | None = None) -> Any:
        """See Worker; exceptions come as they are, and there is no time limit."""
        return task(self._site, *args)


class Isolated:
    """A process of its own, begun when it is first needed and anew after it died."""

    def __init__(self, workers: Workers, variant: Variant) -> None:
        self._workers = workers
        self._real = variant
        self.process: WorkerProcess | None = None
        """The present one."""
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
        """A number that no buffer and no launch has yet."""
        self._numbers += 1
        return self._numbers

    def drop_buffer(self, number: int) -> None:
        """The parent needs it no more."""
        self._dropped[0].append(number)

    def drop_launch(self, number: int) -> None:
        """The parent needs it no more."""
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
                # A GPU's driver reserves more addresses than any machine has memory; so do the threads of a library
                # that others wrote, on many cores.
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

    `timeout_s`: seconds that one call of a candidate may take. `memory_bytes`: what a candidate on the host may take
    beyond what its process has when it starts, 0 for no limit. `held_to`: what all its processes are
    held to; see spec.Masking.
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
        """What of the session kept a candidate from running. Whatever caught it on its way, no verdict that was taken
        after it counts."""

    def of(self, variant: Variant) -> Worker:
        """The worker of that variant. Few of those that were not asked for last keep their processes."""
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
        """The same, with all processes held to a step of the device's Masking."""
        return Workers(
            self.installed,
            self.candidates,
            isolated=self.isolated,
            timeout_s=self.timeout_s,
            memory_bytes=self.memory_bytes,
            held_to=to,
        )

    def renew(self, variant: Variant) -> None:
        """Whatever state that variant's process is in, the next call finds a fresh one."""
        known = self._alive.pop(variant.id, None)
        if known is not None:
            known.close()

    def must_be_fair(self) -> None:
        """Raises BadEnvironmentError where the session was at fault: to be asked before a verdict is kept, and at the
        end."""
        if self.at_fault is not None:
            raise self.at_fault

    def close(self) -> None:
        """End all processes."""
        while self._alive:
            self._alive.popitem()[1].close()

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        self.close()
        if kind is None or issubclass(kind, Exception):  # and not an interruption
            self.must_be_fair()
