"""The worker's side: a process that makes its Site and executes tasks until the parent closes the channel."""

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

from tritmark.harness import judged
from tritmark.harness.errors import Failure, failure_of
from tritmark.harness.machine.cpu import affinity
from tritmark.harness.machine.session import address_space, mapped
from tritmark.harness.sandbox.inside import show_memory
from tritmark.harness.spec import HeldTo
from tritmark.harness.worker.channel import Channel
from tritmark.harness.worker.site import Site, site

if TYPE_CHECKING:
    from tritmark.harness.providers import Candidate

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TEXT = 4000
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Linear algebra libraries read these when they are loaded. For libraries that are already loaded, see blas."""


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """One task."""

    task: Callable[..., Any]
    args: tuple[Any, ...]
    dropped_buffers: tuple[int, ...]
    """Numbers that the parent no longer needs."""
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

    `memory_bytes` limits further address space; 0: no limit. `held_to`: see site. The first message is the descriptor
    for everything that the candidate prints."""
    judged.begin()
    show_memory()
    _let_go_of_the_server()
    settle(cores)
    # Orphaned processes of a candidate stay its children, so the harness finds them.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as end:
            (log,) = reduction.recvfds(end, 1)
    except (EOFError, ConnectionResetError):
        return  # the parent was interrupted
    for stream in (1, 2):
        os.dup2(log, stream)
    faulthandler.enable(2)  # sys.stderr may be None if the harness was started without one
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
        # Added to the existing mappings, most of which are never touched.
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
    """Set up a new process of the harness: it runs on those logical cores, ends with the harness, and ignores
    Ctrl-C."""
    with suppress(OSError):  # a sandbox may refuse it, or may have removed a core: then the affinity stays
        os.sched_setaffinity(0, cores)
    affinity()  # before OpenMP binds this process
    # Its parent is the fork server, which ends with the harness.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked until here; see interruption


def _let_go_of_the_server() -> None:
    """Close the pipes through which a child could start processes. An open pipe keeps the server alive after the
    harness, and a candidate that writes into it could end the server."""
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
    except Exception:  # an exception whose __str__ raises
        text = "(no text)"
    return Raised(
        failure_of(error), type(error).__name__, text[:_TEXT], "".join(traceback.format_exception(error))[-_TEXT:]
    )
