"""Makes a call in a worker, and other attempts after a failure, until one gives a result or none is left."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock
from time import perf_counter
from typing import Any

from tritmark.harness.errors import CandidateError, WorkerError
from tritmark.harness.recovery import history
from tritmark.harness.recovery.advice import ADVICE
from tritmark.harness.recovery.failures import ENDS_CONTEXT, Diagnosis, FailureKind, of_process
from tritmark.harness.recovery.reply import Reply
from tritmark.harness.recovery.result import (
    NumericalFailureError,
    Recovery,
    RecoveryWarning,
    Tried,
    UnrecoveredError,
)
from tritmark.harness.recovery.strategies import OWN_FAULT, PIECES, Attempt, Strategy, ladder
from tritmark.harness.recovery.supervisor import LowerKernel, Supervised, Supervisor
from tritmark.harness.registry import Registry

MOST = 12
"""Limit of attempts of one call."""

_LOG = logging.getLogger(__name__)
_WARNED: set[tuple[str, str, str, str]] = set()
_LOCK = Lock()

Perform = Callable[[Supervised, Attempt], Reply]
"""Makes one attempt in a worker that runs. Raises the errors of Supervised.call."""


@dataclass(slots=True)
class _Broken:
    """The newest failure, from which the next attempt follows."""

    diagnosis: Diagnosis
    attempt: Attempt
    kernel: str
    lower: tuple[LowerKernel, ...]


@dataclass(slots=True)
class Recovering:
    """One call of an op. `host`: the device that works without memory of its own, "" if the op may not run there."""

    supervisor: Supervisor
    registry: Registry
    op: str
    perform: Perform
    host: str
    index: int | None = None
    """Of a batch's product."""
    _begun: float = 0.0
    _ready: float = 0.0
    """When the worker of the newest attempt was ready."""
    _tried: list[Tried] = field(default_factory=list)
    _spent: set[Strategy] = field(default_factory=set)
    """Strategies that make sense once."""
    _excluded: set[str] = field(default_factory=set)
    """Ids of kernels that failed or are impossible."""

    def run(self, attempt: Attempt) -> tuple[Reply, Recovery | None]:
        """The reply with a result, and the recovery if a kernel failed.

        Raises the caller's error, UnrecoveredError, NumericalFailureError, and BadEnvironmentError if the session
        allows no worker.
        """
        self._begun = perf_counter()
        first: _Broken | None = None
        last: _Broken | None = None
        for _ in range(MOST):
            begun = perf_counter()
            reply, broken = self._once(attempt)
            if reply is not None and reply.caller is not None:
                raise reply.caller.made()
            if last is None or first is None:
                if reply is not None:
                    return reply, None
                assert broken is not None
                first = last = broken
            else:
                self._tried.append(
                    Tried(
                        strategy=attempt.strategy,
                        kernel=broken.kernel
                        if broken
                        else reply.receipts[-1].kernel
                        if reply and reply.receipts
                        else "",
                        failure=broken.diagnosis if broken else None,
                        impossible=reply.impossible if reply else "",
                        seconds=perf_counter() - begun,
                    )
                )
                if reply is not None and not reply.impossible:
                    return reply, self._worked(first, attempt, reply)
                last = broken or last
            if broken is not None:
                self._excluded.add(broken.kernel)
                if broken.diagnosis.kind is FailureKind.NUMERICAL:
                    raise self._refused(broken, NumericalFailureError)
            following = self._next(last)
            if following is None:
                break
            attempt = following
        assert first is not None
        raise self._refused(first, UnrecoveredError)

    def _once(self, attempt: Attempt) -> tuple[Reply | None, _Broken | None]:
        worker = self.supervisor.of(attempt.device)
        with worker.lock, worker.turn(self.op):
            try:
                worker.begun.write("")  # first: the kernel of an earlier call is not to blame for a failed start
                worker.start()
                self._ready = perf_counter()
                reply = self.perform(worker, attempt)
            except WorkerError as error:
                worker.must_stay()
                process = worker.process
                diagnosis = of_process(error, None if process is None else process.exitcode)
            except CandidateError as error:
                diagnosis = Diagnosis(kind=FailureKind.ERROR, found=str(error), code=error.name, detail=error.trace)
            except BaseException:  # an interruption leaves a reply behind that belongs to no request
                worker.end()
                raise
            else:
                if reply.failure is None:
                    return reply, None
                diagnosis = reply.failure
            kernel, lower = worker.begun.read()
            if diagnosis.kind in ENDS_CONTEXT:
                worker.end()
        return None, _Broken(diagnosis, attempt, kernel, lower)

    def _next(self, last: _Broken) -> Attempt | None:
        device = self.registry.devices[last.attempt.device]
        for strategy in ladder(last.diagnosis.kind, device.memory is not None):
            if strategy in self._spent:
                continue
            made = self._made(strategy, last)
            if made is not None:
                return replace(made, strategy=strategy)
        return None

    def _made(self, strategy: Strategy, last: _Broken) -> Attempt | None:
        """The attempt of a strategy; None if it has nothing to offer."""
        attempt = last.attempt
        if strategy in {Strategy.LOWER_SET, Strategy.SCALAR, Strategy.OTHER_KERNEL}:
            return self._lower(strategy, last)
        self._spent.add(strategy)
        if strategy is Strategy.CPU:
            return Attempt(device=self.host) if self.host else None
        if strategy is Strategy.FREED_MEMORY:
            return replace(attempt, freed=True)
        if strategy is Strategy.REDUCED_LAUNCH:
            return replace(attempt, pieces=PIECES)
        if strategy is Strategy.REALIGNED:
            return replace(attempt, realigned=True)
        if strategy is Strategy.FEWER_THREADS:
            count = self.registry.devices[attempt.device].cores() if attempt.threads is None else attempt.threads
            return replace(attempt, threads=1) if count != 1 else None
        following = self._lower(strategy, last) if last.diagnosis.kind in OWN_FAULT else attempt
        if following is not None:
            if strategy is Strategy.DEVICE_RESET:
                self.supervisor.end_all_of(attempt.device)
            else:
                worker = self.supervisor.of(attempt.device)
                with worker.lock:  # another thread may be in a call
                    worker.end()
        return following

    def _lower(self, strategy: Strategy, last: _Broken) -> Attempt | None:
        for each in last.lower:
            suits = {Strategy.LOWER_SET: not each.plain, Strategy.SCALAR: each.plain}.get(strategy, True)
            if each.id not in self._excluded and suits:
                self._excluded.add(each.id)  # whatever becomes of it
                return replace(last.attempt, variant=each.name)
        return None

    def _worked(self, first: _Broken, attempt: Attempt, reply: Reply) -> Recovery:
        kernel = reply.receipts[-1].kernel if reply.receipts else ""
        made = self._recovery(first, attempt.strategy, kernel, self._ready - self._begun)
        history.append(made)
        kinds = made.failed, str(made.diagnosis.kind), str(made.strategy), made.kernel
        with _LOCK:
            new = kinds not in _WARNED
            _WARNED.add(kinds)
        if new:
            try:
                warnings.warn(RecoveryWarning(str(made)), stacklevel=7)
            except RecoveryWarning:  # a filter makes it an error, which would lose the result
                _LOG.warning("%s", made)
        return made

    def _refused(self, broken: _Broken, kind: type[UnrecoveredError]) -> UnrecoveredError:
        made = self._recovery(broken, Strategy.NONE, "", perf_counter() - self._begun)
        history.append(made)
        return kind(made)

    def _recovery(self, broken: _Broken, strategy: Strategy, kernel: str, lost: float) -> Recovery:
        return Recovery(
            op=self.op,
            failed=broken.kernel,
            diagnosis=broken.diagnosis,
            tried=tuple(self._tried),
            strategy=strategy,
            kernel=kernel,
            seconds_lost=lost,
            advice=ADVICE[broken.diagnosis.kind],
            created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}Z",
            index=self.index,
        )


def forget_warnings() -> None:
    """Issue every RecoveryWarning once more; for tests."""
    with _LOCK:
        _WARNED.clear()


def result_of(reply: Reply) -> Any:
    """The result, with arrays that the caller may write to: those that came by a message are read-only."""
    return _writable(reply.result)


def _writable(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else value.copy()
    if isinstance(value, tuple):
        made = tuple(map(_writable, value))
        return type(value)(*made) if hasattr(value, "_fields") else made
    return [_writable(each) for each in value] if isinstance(value, list) else value
