"""A monitored part of a program, from its start to its end."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tritmark.harness.errors import InvalidArgumentError, UsageError
from tritmark.harness.monitor import hook, receipts
from tritmark.harness.monitor.counters import Counters, Snapshot, since
from tritmark.harness.monitor.data import Series, SessionData, by_time
from tritmark.harness.monitor.machine_samples import Sample, Sampler

if TYPE_CHECKING:
    from tritmark.harness.monitor.metrics import Metric
    from tritmark.harness.spec import DeviceStats

P = ParamSpec("P")
R = TypeVar("R")

_LOG = logging.getLogger(__name__)
_SAVE_S = 60.0
"""Seconds between two saves of a running session."""
_TIMED_PER_S = 20_000
"""Calls that are timed in a second; above it, one of several is. Counting goes on."""
_SHORTEST_S = 0.05
_GAUGES = ("pool_active", "pool_held", "pool_most_held")
"""What is reported of the moment; the rest are totals."""


class _Shared:
    """The counters of this process, while at least one session needs them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As no session needs them. In a forked child another thread of the parent may have held the lock."""
        self.lock = threading.RLock()
        self.counters: Counters | None = None
        self.users: list[str] = []
        """Ids of the sessions, the oldest first."""

    def join(self, session: str) -> Counters:
        """Counters that count from now on."""
        with self.lock:
            if self.counters is None:
                self.counters = Counters(hook.recorders[0])
                receipts.watch_with(self.counters.watch)
            self.users.append(session)
            return self.counters

    def leave(self, session: str) -> None:
        """One session needs them no more."""
        with self.lock:
            if session in self.users:
                self.users.remove(session)
            if not self.users:
                self.counters = None
                receipts.watch_with(None)

    def around(self, session: str) -> tuple[str, ...]:
        """Sessions that began before this one and still run: they counted all of its calls."""
        with self.lock:
            return tuple(self.users[: self.users.index(session)]) if session in self.users else ()


_SHARED = _Shared()


def _forked() -> None:
    """In a forked child: nothing is watched, and the parent's sessions are the parent's."""
    receipts.watch_with(None)
    hook.forget()
    _SHARED.reset()


os.register_at_fork(after_in_child=_forked)


class MonitorSession:
    """See tritmark.monitor. Use it as a context manager, or as a decorator: then each call of the function is a session
    of its own."""

    def __init__(
        self, program: str = "", *, database: str | Path | None = None, interval_s: float = 1.0, keep: bool = True
    ) -> None:
        if not interval_s >= _SHORTEST_S:
            legal = f"{_SHORTEST_S} or more"
            raise InvalidArgumentError(op="monitor", argument="interval_s", found=repr(interval_s), legal=legal)
        self._options: dict[str, Any] = {"database": database, "interval_s": interval_s, "keep": keep}
        self._named = bool(program)
        # A script may have a name that is no UTF-8, which SQLite refuses.
        self.program = (program or _script()).encode(errors="backslashreplace").decode()
        self.database = database
        self.data: SessionData | None = None
        """What was found, after the end."""
        self.problem = ""
        """Why the session could not be saved; "" if it was, or need not be."""
        self._interval, self._keep = interval_s, keep
        self._counters: Counters | None = None
        self._before: Snapshot = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._sampler: Sampler | None = None
        self._every = 1
        self._id = ""
        self._started = self._began = 0.0
        self._pid = 0
        self._devices: dict[str, dict[str, int]] = {}
        self._machine: tuple[str, str] | None = None
        self._saving = threading.Lock()
        self._exporting = threading.Lock()
        self._exported: dict[tuple[str, ...], float] = {}
        self._sinks: list[Any] = []

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, each call of which is a session. Raises InvalidArgumentError for generators and coroutines,
        whose calls return before they ran."""
        if any(kind(function) for kind in (isgeneratorfunction, iscoroutinefunction, isasyncgenfunction)):
            found, legal = "a generator or coroutine", "a function; or `with tritmark.monitor():` inside it"
            raise InvalidArgumentError(op="monitor", argument="the function", found=found, legal=legal)
        program = self.program if self._named else getattr(function, "__qualname__", type(function).__qualname__)

        @wraps(function)
        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            with MonitorSession(program, **self._options):
                return function(*args, **kwargs)

        return watched

    def __enter__(self) -> MonitorSession:
        if self._started:
            raise UsageError(f"the session {self._id} began already; legal: a new tritmark.monitor()")
        from secrets import token_hex

        self._started, self._began, self._pid = time.time(), time.monotonic(), os.getpid()
        self._id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(self._started))}-{token_hex(4)}"
        self._sampler = Sampler(self._calls, self._activity)
        hook.when_provided(self._join)
        self._thread = threading.Thread(target=self._watch, name="tritmark-monitor", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pid != os.getpid() or self.data is not None:  # a forked child left the block, too
            return
        try:
            self._stop.set()
            if self._thread is not None:
                self._thread.join()
            for each in self._sinks:
                each.close()
            self.data = self._found(complete=True)
        except Exception as fault:  # of the monitor; it must not replace the program's own exception
            self.problem = f"the session has no data: {fault}"
            _LOG.exception("tritmark.monitor: the session has no data")
        finally:
            hook.forget(self._join)
            if self._counters is not None:
                _SHARED.leave(self._id)
                self._counters = None
        if self._keep and self.data is not None:
            self._save(self.data)

    def now(self) -> SessionData:
        """What was found so far. Raises UsageError before the start."""
        if self._sampler is None:
            raise UsageError("the session has not begun; legal: inside `with tritmark.monitor() as session:`")
        return self.data or self._found(complete=False)

    def prometheus(self, port: int = 9464, address: str = "127.0.0.1") -> int:
        """Serve metrics for Prometheus at that address until the end, and return the port; 0 picks a free one. By
        default only programs of this machine can read it. Raises UsageError without prometheus-client, for an address
        that is in use, and outside the session."""
        from tritmark.harness.monitor.prometheus import PrometheusEndpoint

        self._check_running()
        endpoint = PrometheusEndpoint(self._metrics, port, address)
        self._sinks.append(endpoint)
        return endpoint.port

    def opentelemetry(self, meter_provider: Any = None) -> None:
        """Report metrics to OpenTelemetry until the end: to `meter_provider`, by default the global one. Raises
        UsageError without OpenTelemetry, and outside the session."""
        from tritmark.harness.monitor.machine_samples import NOTHING
        from tritmark.harness.monitor.metrics import metrics
        from tritmark.harness.monitor.otel import OtelInstruments

        self._check_running()
        known = metrics(self.now(), self.latest_sample() or NOTHING)
        self._sinks.append(OtelInstruments(self._metrics, known, meter_provider))

    def latest_sample(self) -> Sample | None:
        """The machine at the last sample."""
        return self._sampler.samples[-1] if self._sampler is not None and self._sampler.samples else None

    def _check_running(self) -> None:
        """What starts later would never be closed."""
        if self._sampler is None or self._stop.is_set():
            raise UsageError("the session is not running; legal: inside `with tritmark.monitor() as session:`")

    def _metrics(self) -> list[Metric]:
        from tritmark.harness.monitor.metrics import metrics

        return [self._growing(each) if each.total else each for each in metrics(self.now(), self.latest_sample())]

    def _growing(self, found: Metric) -> Metric:
        """Totals as exporters need them: the time of all calls is an estimate, which may fall."""
        values = []
        with self._exporting:
            for labels, value in found.values:
                of = found.name, *labels.values()
                self._exported[of] = max(value, self._exported.get(of, 0.0))
                values.append((labels, self._exported[of]))
        return replace(found, values=tuple(values))

    def _join(self) -> None:
        self._counters = _SHARED.join(self._id)
        self._before, self._every = self._counters.snapshot(), self._counters.watch.every
        self._devices = self._activity()

    def _calls(self) -> int:
        return self._counters.calls() if self._counters is not None else 0

    def _activity(self) -> dict[str, dict[str, int]]:
        """What devices count, if the kernels are loaded and ran."""
        if self._counters is None or not self._counters.calls():
            return {}
        from tritmark.harness.providers import installed

        found = [each.stats() for each in installed().registry.devices.values() if each.stats is not None]
        return {each.device: _counts(each) for each in found if each.launches or each.uploads}

    def _watch(self) -> None:
        assert self._sampler is not None
        saved = time.monotonic()
        while not self._stop.wait(self._interval):
            try:
                sample = self._sampler.take()
                if self._counters is not None:
                    every = max(1, round(sample.calls / self._interval / _TIMED_PER_S))
                    self._counters.watch.every = every
                    self._every = max(self._every, every)
                if self._keep and time.monotonic() - saved > _SAVE_S:
                    saved = time.monotonic()
                    self._save(self._found(complete=False))
            except Exception:  # a fault of the monitor must not end the program, nor go unseen
                _LOG.exception("tritmark.monitor: a sample failed; the session goes on without it")

    def _found(self, *, complete: bool) -> SessionData:
        from tritmark.harness.monitor.machine_samples import machine_id
        from tritmark.harness.monitor.work import work

        counters, sampler = self._counters, self._sampler
        assert sampler is not None
        if self._machine is None:
            self._machine = machine_id(), _host()
        series = []
        for key, counts in since(counters.snapshot(), self._before).items() if counters is not None else ():
            done = work(key.kernel, counts.sizes)
            nbytes, operations = done if done is not None else (None, None)
            timed = sum(counts.histogram.values())
            total_ns = round(counts.busy_ns / counts.calls * timed) if counts.calls else 0
            series.append(Series(key, counts.calls, total_ns, counts.histogram, counts.errors, nbytes, operations))
        if complete and series and not sampler.samples:
            try:
                sampler.take()
            except Exception:  # see _watch
                _LOG.exception("tritmark.monitor: a sample failed; the session has none")
        return SessionData(
            id=self._id,
            program=self.program,
            started=self._started,
            ended=self._started + time.monotonic() - self._began,  # the clock may be set meanwhile
            complete=complete,
            machine=self._machine[0],
            host=self._machine[1],
            version=_version(),
            pid=self._pid,
            every=self._every,
            series=by_time(series),
            samples=tuple(sampler.samples),
            devices=_difference(self._activity(), self._devices),
            within=_SHARED.around(self._id),
        )

    def _save(self, data: SessionData) -> None:
        if not data.series:
            return
        from tritmark.harness.monitor.database import Database

        with self._saving:
            try:
                self.problem = ""
                Database(self.database).save(data)
            except Exception as error:  # a fault of the monitor must not end the program
                self.problem = str(error)
                _LOG.warning("tritmark.monitor: the session is not saved: %s", error)


def _counts(stats: DeviceStats) -> dict[str, int]:
    return {
        "uploads": stats.uploads,
        "bytes_uploaded": stats.bytes_uploaded,
        "downloads": stats.downloads,
        "bytes_downloaded": stats.bytes_downloaded,
        "pool_hits": stats.cache_hits,
        "pool_misses": stats.cache_misses,
        "pool_active": stats.pool.active,
        "pool_held": stats.pool.held,
        "pool_most_held": stats.pool.most_held,
    }


def _difference(now: dict[str, dict[str, int]], before: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {
        device: {
            name: count if name in _GAUGES else count - before.get(device, {}).get(name, 0)
            for name, count in counts.items()
        }
        for device, counts in now.items()
    }


def _script() -> str:
    if not sys.argv or sys.argv[0] in {"", "-c", "-m"}:
        return "python"
    path = Path(sys.argv[0])
    if path.name == "__main__.py":  # python -m PACKAGE
        return path.absolute().parent.name or path.name
    return path.name


def _host() -> str:
    import platform

    from tritmark.harness.machine.cpu import model

    fields = dict(each.partition(" name ")[::2] for each in model().split(", "))
    return f"{platform.node()}, {fields.get('model', platform.machine())}"


def _version() -> str:
    import tritmark

    return tritmark.__version__
