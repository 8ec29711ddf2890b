"""The worker's side: a process that makes its Site, and does one task after the other until the parent is gone."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver, reduction, resource_tracker
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from tritmark.harness.errors import Failure, failure_of
from tritmark.harness.machine.cpu import affinity
from tritmark.harness.machine.session import address_space, mapped
from tritmark.harness.spec import HeldTo
from tritmark.harness.worker.channel import Channel
from tritmark.harness.worker.site import Site, site

if TYPE_CHECKING:
    from tritmark.harness.providers import Candidate

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TEXT = 4000
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Read by libraries of linear algebra when they are loaded; those that are loaded already see blas."""


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """One task."""

    task: Callable[..., Any]
    args: tuple[Any, ...]
    dropped_buffers: tuple[int, ...]
    """Numbers that the parent needs no more."""
    dropped_launches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The task's result."""

    result: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The task raised."""

    kind: Failure
    name: str
    """The exception's type."""
    text: str
    trace: str


def serve(
    connection: Connection,
    candidates: Sequence[Candidate],
    variant_id: str,
    environment: dict[str, str],
    cores: frozenset[int],
    memory_bytes: int,
    held_to: HeldTo | None = None,
) -> None:
    """Run in the new process, on those logical cores: OpenMP may have bound the parent to one of them.
    `memory_bytes` limits the address space from here on, 0 not at all; `held_to` is what site takes. First comes the
    descriptor of what takes all that the candidate prints."""
    _let_go_of_the_server()
    settle(cores)
    # What a candidate starts stays below it, also where who started it has ended.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as end:
            (log,) = reduction.recvfds(end, 1)
    except (EOFError, ConnectionResetError):
        return  # the parent was interrupted meanwhile
    for stream in (1, 2):
        os.dup2(log, stream)
    faulthandler.enable(2)  # Python has no sys.stderr where the harness was started without
    os.environ.clear()
    os.environ.update({**environment, **_ONE_THREAD})
    channel = Channel(connection, trusted=True)
    try:
        here = site(candidates, variant_id, held_to)
        begin: Done | Raised = Done(None)
    except BaseException as error:
        begin = _raised(error)
    channel.receive()
    channel.send(begin)
    if isinstance(begin, Raised):
        return
    if memory_bytes:
        # Beyond what is mapped already; most of that is never touched.
        resource.setrlimit(resource.RLIMIT_AS, address_space(mapped() + memory_bytes))
    while True:
        try:
            request = channel.receive()
        except EOFError:
            return
        channel.send(_do(here, request))
        if sys.stdout is not None:
            sys.stdout.flush()


def settle(cores: frozenset[int]) -> None:
    """Make a new process one of the harness's: it may run on those logical cores, ends with the harness, and leaves
    Ctrl-C to it."""
    with suppress(OSError):  # a sandbox may refuse it, or have taken a core away: where it is, it stays
        os.sched_setaffinity(0, cores)
    affinity()  # before OpenMP binds this process
    # Its parent is the server that forked it, which ends with the harness.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # as it was up to here; see interruption


def _let_go_of_the_server() -> None:
    """Close the pipes with which a child could start more processes: while one is open the server outlives the
    harness, and what a candidate writes into one ends it."""
    server, tracker = forkserver._forkserver, resource_tracker._resource_tracker
    for owner, name in ((server, "_forkserver_alive_fd"), (tracker, "_fd")):
        descriptor = getattr(owner, name)
        if descriptor is not None:
            os.close(descriptor)
            setattr(owner, name, None)


def _do(here: Site, request: TaskRequest) -> Done | Raised:
    for number in request.dropped_launches:
        here.launches.pop(number, None)
    for number in request.dropped_buffers:
        here.buffers.pop(number, None)
    try:
        return Done(request.task(here, *request.args))
    except BaseException as error:
        return _raised(error)


def _raised(error: BaseException) -> Raised:
    try:
        text = str(error)
    except Exception:  # whose text cannot be had
        text = "(no text)"
    return Raised(
        failure_of(error), type(error).__name__, text[:_TEXT], "".join(traceback.format_exception(error))[-_TEXT:]
    )
