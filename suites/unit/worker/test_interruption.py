"""Ctrl-C at the moments that matter: nothing is cut in two, and no traceback is printed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tritmark.harness.interruption import end_pool, interrupted_once, uninterrupted
from tritmark.harness.judge import judges
from tritmark.harness.selftest import run as selftest
from tritmark.harness.worker.process import CONTEXT, importing, prepare

pytestmark = [pytest.mark.timing, pytest.mark.interpreter]

LONG_S = 600.0


@pytest.fixture(autouse=True)
def as_in_the_foreground() -> Iterator[None]:
    """What runs in the background, as some CI does, has SIGINT ignored."""
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, kept)


def said(tmp_path: Path, script: str) -> tuple[str, str]:
    """What a process prints that runs it with real signals, and what it and all that it started say on the error
    stream."""
    file = tmp_path / "script.py"
    begin = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    file.write_text(begin + textwrap.dedent(script))
    done = subprocess.run([sys.executable, file], check=False, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    return done.stdout, done.stderr


# What must not be cut in two


def test_it_is_met_behind_the_block() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("all of it")
        done.append("no more")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_blocks_within_blocks() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            with uninterrupted():
                signal.raise_signal(signal.SIGINT)
            done.append("the outer one")
        done.append("no more")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the outer one"]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_nothing_came() -> None:
    with uninterrupted():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(ZeroDivisionError), uninterrupted():
        _ = 1 / 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_another_thread_is_given_the_signal() -> None:
    """It has not blocked it, as a pool's thread that manages."""
    done = []
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()

    @uninterrupted()
    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        done.append("all of it")

    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        over.set()
        other.join()
    assert done == ["all of it"]


def test_other_threads_leave_the_handler_alone() -> None:
    found: list[object] = []

    def look() -> None:
        with uninterrupted():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_ignored_it_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupted_once(), uninterrupted():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


# Ctrl-C twice


def test_the_second_one_does_nothing() -> None:
    ended = []

    @interrupted_once()
    def work() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            ended.append("in good order")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert ended == ["in good order"]
    signal.raise_signal(signal.SIGINT)  # nor behind it, up to the end of the process


def test_afterwards_it_is_as_before() -> None:
    with interrupted_once():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# Processes


def test_while_a_worker_is_being_started(tmp_path: Path) -> None:
    """The server has begun a process, which waits to be told what it is: it is told all of it."""
    out, err = said(
        tmp_path,
        """
        import os
        from multiprocessing import forkserver
        from tritmark.harness.providers import load
        from tritmark.harness.worker.process import WorkerProcess
        begin, read = forkserver.connect_to_new_process, forkserver.read_signed

        def interrupted(fds):
            begun = begin(fds)
            os.kill(os.getpid(), signal.SIGINT)
            return begun

        def told(pipe):
            print("told")
            return read(pipe)

        forkserver.connect_to_new_process = interrupted
        forkserver.read_signed = told
        variant = load().registry.variants[0].id
        try:
            WorkerProcess((), variant, memory_bytes=0, limit_address_space=False)
        except KeyboardInterrupt:
            print("interrupted")
        """,
    )
    assert out.startswith("told\ninterrupted\n")  # how it ended is read later
    assert err == ""


def test_while_the_server_imports(tmp_path: Path) -> None:
    """A terminal's Ctrl-C reaches it too."""
    out, err = said(
        tmp_path,
        """
        import os
        from multiprocessing import forkserver
        from tritmark.harness.interruption import uninterrupted
        from tritmark.harness.worker.process import CONTEXT, importing, prepare
        prepare()
        for _ in range(20):
            os.kill(forkserver._forkserver._forkserver_pid, signal.SIGINT)
        process = CONTEXT.Process(target=print, args=("begun",))
        with importing(), uninterrupted():
            process.start()
        os.kill(process.pid, signal.SIGINT)
        process.join()
        """,
    )
    assert (out, err) == ("begun\n", "")


@pytest.mark.parametrize("asked", ["connect_to_new_process([])", "connect(server)"])
def test_who_asks_for_a_process_ends_meanwhile(tmp_path: Path, asked: str) -> None:
    """As a judge that is killed."""
    out, err = said(
        tmp_path,
        f"""
        import os, socket, time
        from multiprocessing import forkserver
        from tritmark.harness.worker.process import CONTEXT, importing, prepare

        def connect(address):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(address)
            return []

        prepare()
        with importing():  # once it answers
            process = CONTEXT.Process(target=int)
            process.start()
        process.join()
        server = forkserver._forkserver._forkserver_address
        connect_to_new_process = forkserver.connect_to_new_process
        for end in {asked}:
            os.close(end)
        time.sleep(0.5)
        """,
    )
    assert (out, err) == ("", "")


def test_the_server_still_tells_of_other_problems(tmp_path: Path) -> None:
    _, err = said(
        tmp_path,
        """
        import sys
        import tritmark.harness.worker.server
        raise ValueError("of another kind")
        """,
    )
    assert "ValueError: of another kind" in err


@pytest.mark.parametrize("method", ["ours", "spawn"])
def test_a_pool_that_is_interrupted_ends_at_once(method: str) -> None:
    prepare()
    context = CONTEXT if method == "ours" else multiprocessing.get_context("spawn")
    begun = time.monotonic()
    with importing(), uninterrupted():
        pool = ProcessPoolExecutor(2, context)
        waiting = [pool.submit(time.sleep, LONG_S) for _ in range(3)]
    while not any(future.running() for future in waiting):
        time.sleep(0.01)
    pids = list(pool._processes)

    def work() -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            waiting[0].result()
        finally:
            end_pool(pool, at_once=True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert time.monotonic() - begun < LONG_S / 10
    assert not any(psutil.pid_exists(pid) for pid in pids)


class Interrupted:
    """A pool, at each of whose steps Ctrl-C comes."""

    _processes: dict[int, Any] = {}  # noqa: RUF012
    _broken = False

    def __init__(self, done: list[str]) -> None:
        self.done = done

    def step(self, name: str) -> None:
        signal.raise_signal(signal.SIGINT)
        self.done.append(name)

    def submit(self, *_: Any) -> Future[Any]:
        self.step("submitted")
        return Future()

    def shutdown(self, **_: Any) -> None:
        self.step("shut down")


@pytest.mark.parametrize("of", [judges, selftest])
def test_a_pool_is_told_its_work_and_shut_down_in_one_piece(monkeypatch: pytest.MonkeyPatch, of: Any) -> None:
    done: list[str] = []
    monkeypatch.setattr(of, "ProcessPoolExecutor", lambda *_: Interrupted(done))
    work: Any = (
        judges._side_by_side([([0], [])], judges.Limits((), isolated=True, timeout_s=1, memory_bytes=0), 1)
        if of is judges
        else selftest._done(None, [None, None], 2, None)  # type: ignore[arg-type,list-item]
    )
    with pytest.raises(KeyboardInterrupt):
        next(work)
    assert done[0] == "submitted"
    assert done[-1] == "shut down"
