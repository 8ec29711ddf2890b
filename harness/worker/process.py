"""The parent's side of one worker process: start, request, watch, end.

Processes are forked from a server (multiprocessing's forkserver). The server has imported all that workers need, and
never used a device or started a thread. So a new worker takes about 20 ms, and no CUDA context is ever forked.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import forkserver, reduction, resource_tracker
from multiprocessing.connection import wait
from time import monotonic, sleep
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tritmark.harness.errors import BadEnvironmentError, CandidateError, Failure, ServerEndedError, WorkerError
from tritmark.harness.interruption import uninterrupted
from tritmark.harness.machine.cpu import affinity
from tritmark.harness.machine.session import cause, killed_for_memory, must_suffice
from tritmark.harness.sandbox.inside import hide_memory
from tritmark.harness.spec import HeldTo
from tritmark.harness.worker.channel import Channel, GarbledError
from tritmark.harness.worker.serve import Raised, TaskRequest, serve

if TYPE_CHECKING:
    from tritmark.harness.providers import Candidate

START_S = 60.0
"""Time limit for a worker to import a candidate, seconds."""

CONTEXT = multiprocessing.get_context("forkserver")
_PRELOADED = (
    "tritmark.harness.worker.server",
    "tritmark.harness.worker.hidden",
    "tritmark.harness.judge.judges",
    "tritmark.harness.validate.performance",
    "tritmark.harness.worker.serve",
    "tritmark.harness.worker.packages",
    "platformdirs",  # a first call may use it to find tuned choices
    "tritmark.harness.worker.blas",  # last: it acts on the libraries that are loaded by then
)
_WARNINGS = "PYTHONWARNINGS"
_RAISED = frozenset({Failure.MEMORY, Failure.DEVICE, Failure.LEAK, Failure.ENVIRONMENT, Failure.ERROR})
"""Failures that an exception of a candidate can state. The parent detects the others."""

_STACK, _HEAP = 8 << 20, 64 << 20
"""Bytes of a thread's stack if the system sets no limit, and of its heap (HEAP_MAX_SIZE of glibc)."""

LOG = "tritmark-log"
"""Name of the memfd for a worker's standard output and error."""

_SERVER_ENDED = frozenset({errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE, errno.ENOENT})
"""Errors of a connection to a server that has ended."""

_GRACE_S = 1.0
_ENDING_S = 2.0
"""A server that closed its socket may take so long to end; one that is killed frees its memory in between."""
_LOOK_S = 0.2
_LOG_TAIL = 2000


def _of_threads() -> int:
    """Address space of a library's threads on every core and as many Python threads: a stack and a heap each."""
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if stack == resource.RLIM_INFINITY:
        stack = _STACK
    return 2 * len(affinity()) * (stack + _HEAP)


def prepare() -> None:
    """Start the server that workers are forked from, unless it runs already. Raises BadEnvironmentError if this session
    allows no server."""
    hide_memory()
    _suffices()
    _watch_forks()
    CONTEXT.set_forkserver_preload(list(_PRELOADED))
    with starting():
        with _by_itself(), uninterrupted():
            resource_tracker.ensure_running()  # first: if it has to start, it leaves SIGINT unblocked
        with importing(), _by_itself(), uninterrupted():
            # the method of the object, since judges replace it; see judge.judges
            forkserver._forkserver.ensure_running()


def await_ended_server() -> None:
    """After a ServerEndedError: wait until the server has ended, since `prepare` starts none before."""
    pid, until = vars(forkserver._forkserver)["_forkserver_pid"], monotonic() + _ENDING_S
    while pid is not None and monotonic() < until:
        try:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
        except ChildProcessError:
            return  # its end was noticed
        sleep(_ENDING_S / 200)


@cache
def _suffices() -> None:
    must_suffice()


@cache
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=_forked)


def _forked() -> None:
    """In a forked child: let go of the parent's server and workers. At its exit, multiprocessing would end them; an
    open connection would keep them after the parent; and the child needs a server of its own."""
    server = forkserver._forkserver
    if getattr(server, "_forkserver_pid", None) is None:
        return  # this process has no server, such as a worker
    with suppress(OSError, TypeError):
        os.close(vars(server)["_forkserver_alive_fd"])
    vars(server).update(vars(type(server)()))
    for each in list(_RUNNING):
        each.disown()


@contextmanager
def starting() -> Iterator[None]:
    """While processes start: errors of the system are raised as BadEnvironmentError, and as ServerEndedError if the
    server does not answer."""
    try:
        yield
    except (OSError, EOFError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error) or "its server ended"
        ended = isinstance(error, EOFError) or error.errno in _SERVER_ENDED
        raise (ServerEndedError if ended else BadEnvironmentError)(
            f"no process can be started to judge kernels ({why})",
            next_step="check the limits of processes, files, memory and CPU time (ulimit -a), TMPDIR (use a short "
            "path) and /dev/shm",
        ) from error


@contextmanager
def _by_itself() -> Iterator[None]:
    """While the server's Python starts: adds -P, so that it imports nothing from the current folder, and removes the
    user's warning filters, which would turn warnings into errors of kernels."""
    from multiprocessing import util

    given: Callable[[], list[str]] = vars(util)["_args_from_interpreter_flags"]
    reported = os.environ.pop(_WARNINGS, None)

    def arguments() -> list[str]:
        kept = [each for each in given() if not each.startswith("-W") and each != "-P"]
        return [*kept, "-P"]

    vars(util)["_args_from_interpreter_flags"] = arguments
    try:
        yield
    finally:
        vars(util)["_args_from_interpreter_flags"] = given
        if reported is not None:
            os.environ[_WARNINGS] = reported


class WorkerProcess:
    """One process for one variant. Not thread-safe.

    `memory_bytes`: limit of resident memory, and of address space beyond that at start and that of threads (0:
    unlimited). `environment`: variables beyond those of this process. `held_to`: see spec.Masking.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        variant_id: str,
        *,
        memory_bytes: int,
        limit_address_space: bool,
        environment: Mapping[str, str] = MappingProxyType({}),
        held_to: HeldTo | None = None,
    ) -> None:
        prepare()
        self._log = -1
        self._memory_bytes = memory_bytes
        self.found: Any = None
        """Its first recorded state; see validate.state."""
        self._limit = limit = memory_bytes + _of_threads() if limit_address_space and memory_bytes else 0
        self._killed_before = killed_for_memory()
        with starting():
            mine, its = CONTEXT.Pipe(duplex=True)
            self._log = os.memfd_create(LOG, os.MFD_CLOEXEC)
        self._channel = Channel(mine, trusted=False)
        arguments = (its, tuple(candidates), variant_id, {**os.environ, **environment}, affinity(), limit, held_to)
        self._process = CONTEXT.Process(target=serve, args=arguments, name=f"tritmark {variant_id}", daemon=True)
        with importing(), starting(), uninterrupted():
            self._process.start()
        its.close()
        _RUNNING.add(self)
        try:
            with socket.fromfd(mine.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as end:
                reduction.sendfds(end, [self._log])
            self._channel.send(None)
            self._reply("start", START_S)
        except OSError as error:
            raise self._died("start") from error

    @property
    def pid(self) -> int | None:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still answers."""
        return self._log >= 0

    @property
    def exitcode(self) -> int | None:
        """The exit status, or the negative number of a signal; None while it runs."""
        return self._process.exitcode

    def call(self, what: str, timeout_s: float, request: TaskRequest) -> Any:
        """Return the task's result. `what` names the action in error messages.

        Raises CandidateError if the task raised, WorkerError if the process died, timed out or took too much memory.
        After a WorkerError the process is gone.
        """
        try:
            self._channel.send(request)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._died(what) from error
        return self._reply(what, timeout_s)

    def close(self) -> None:
        """End the process immediately."""
        if not self.alive:
            return
        self._channel.connection.close()
        self._process.join(_GRACE_S)
        self._end()

    def kill(self) -> None:
        """End the process from another thread than that of its calls: a call there raises WorkerError."""
        self._process.kill()

    def disown(self) -> None:
        """In a forked child: forget the process, which belongs to the parent."""
        vars(multiprocessing.process)["_children"].discard(self._process)
        if self.alive:
            with suppress(OSError):
                self._channel.connection.close()
            os.close(self._log)
            self._log = -1

    def _reply(self, what: str, timeout_s: float) -> Any:
        deadline = monotonic() + timeout_s
        connection = self._channel.connection
        while not connection.poll(0):
            left = deadline - monotonic()
            if left <= 0:
                raise self._failed(Failure.HANG, f"did not return from {what} within {timeout_s:g} s and was killed")
            if self._process.sentinel in wait(
                [connection, self._process.sentinel], min(left, _LOOK_S)
            ) and not connection.poll(0):
                raise self._died(what)
            if self._memory_bytes and (rss := self._rss_bytes()) > self._memory_bytes:
                raise self._failed(
                    Failure.MEMORY,
                    f"held {rss} bytes in {what} and was killed; allowed: {self._memory_bytes}",
                )
        try:
            reply = self._channel.receive()
        except (EOFError, ConnectionResetError) as error:
            raise self._died(what) from error
        except (GarbledError, OSError) as error:
            raise self._failed(
                Failure.PROTOCOL, f"sent data that is not the result of {what} ({error}), and was killed"
            ) from error
        if isinstance(reply, Raised):
            # The candidate's process may forge the reply. It decides only the kind of an ERROR, not whether it is one.
            kind = reply.kind if isinstance(reply.kind, Failure) and reply.kind in _RAISED else Failure.ERROR
            if kind is Failure.ENVIRONMENT:
                found, _, remedy = reply.text.partition("; next: ")
                raise BadEnvironmentError(found, next_step=remedy)
            self._must_be_its_own(kind)
            raise CandidateError(kind, reply.name, reply.text, reply.trace)
        return reply.result

    def _rss_bytes(self) -> int:
        with (
            suppress(OSError, ValueError, IndexError),
            open(f"/proc/{self._process.pid}/statm", encoding="ascii") as file,
        ):
            fields = file.read().split()
            return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")  # shared pages belong to the parent
        return 0

    def _died(self, what: str) -> WorkerError:
        self._process.join(_GRACE_S)
        code = self._process.exitcode
        if code is None:
            return self._failed(Failure.PROTOCOL, f"closed its end of the connection in {what}, and was killed")
        self._must_be_its_own(Failure.CRASH if code < 0 else Failure.EXIT, -min(0, code))
        if code < 0:
            return self._failed(Failure.CRASH, f"was killed by {_signal(-code)} in {what}")
        return self._failed(Failure.EXIT, f"ended with exit status {code} in {what}")

    def _must_be_its_own(self, kind: Failure, died_of: int = 0) -> None:
        """Raise BadEnvironmentError if the session may have ended the process."""
        found = cause(kind, died_of, wanted=self._limit, killed_before=self._killed_before)
        if found is not None:
            self._end()
            raise found

    def _failed(self, kind: Failure, found: str) -> WorkerError:
        log = self._tail()
        self._end()
        return WorkerError(kind, f"the candidate's process {found}", log)

    def _tail(self) -> str:
        with suppress(OSError):
            size = os.fstat(self._log).st_size
            return os.pread(self._log, _LOG_TAIL, max(0, size - _LOG_TAIL)).decode("utf-8", "replace")
        return ""

    def _end(self) -> None:
        """Send TERM, then KILL, with a short wait after each. A process that still does not end is abandoned."""
        with suppress(OSError):
            self._channel.connection.close()
        for end in (self._process.terminate, self._process.kill):
            if self._process.exitcode is not None:
                break
            end()
            self._process.join(_GRACE_S)
        os.close(self._log)
        self._log = -1


_RUNNING: WeakSet[WorkerProcess] = WeakSet()


def _signal(number: int) -> str:
    with suppress(ValueError):
        return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
    return f"signal {number}"


class importing:  # noqa: N801
    """While processes start: hides a `__main__` script, so that multiprocessing does not run it again in each of
    them."""

    def __enter__(self) -> None:
        main = sys.modules["__main__"]
        self._kept = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
        for name in self._kept:
            setattr(main, name, None)

    def __exit__(self, *problem: object) -> None:
        main = sys.modules["__main__"]
        for name, value in self._kept.items():
            setattr(main, name, value)
