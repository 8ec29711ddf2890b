"""Requests to a child process: one line of JSON for each request, and one for each reply."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from time import monotonic
from typing import Any, Protocol, Self

from tritmark.harness import tuned
from tritmark.harness.errors import Failure, TritmarkError, WorkerError
from tritmark.harness.machine.session import cause, killed_for_memory
from tritmark.harness.worker.process import starting

_LOG_TAIL = 2000
_GRACE_S = 5.0


class Stage(Enum):
    """What a process is about to do, in the words of messages."""

    RUNNING_BASE = "running BASE"
    RUNNING_HEAD = "running HEAD"
    COMPARING = "comparing outputs"
    MEASURING_BASE = "measuring BASE"
    MEASURING_HEAD = "measuring HEAD"
    MEASURING = "measuring both, interleaved"


class StageTeller(Protocol):
    """Reports what a process is about to do, and on what, before it does it: the process may die of it."""

    def __call__(self, stage: Stage, of: str = "") -> None: ...


def environment() -> dict[str, str]:
    """Environment variables of a child process.

    It imports the same code as this process, and nothing from the current folder. A build's warnings do not become
    errors. Choices of `tritmark tune` are off: they hold for the code of one build only.
    """
    own = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), tuned.SELECT: "off", "PYTHONWARNINGS": ""}
    return os.environ | own


class Child:
    """A process that runs `module` with the arguments and answers requests (see `serve`). As a context manager, it ends
    the process on exit."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._killed_before = killed_for_memory()
        with starting():
            self._log = os.fdopen(os.memfd_create("tritmark-gate-log", os.MFD_CLOEXEC), "w+b")
            self._answers, theirs = os.pipe()
            # Replies have their own pipe: a sitecustomize may print before our code runs.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                env=environment(),
                bufsize=0,
                pass_fds=(theirs,),
            )
        os.close(theirs)
        with suppress(BrokenPipeError):  # the first request reports that the process has ended
            assert self._process.stdin is not None
            self._process.stdin.write(b"%d\n" % theirs)
        self._rest = b""
        self.stage: Stage | None = None
        """The stage that the process reported last."""
        self.of = ""
        """The subject of the stage, such as a case; "" if none was reported."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, what: str, timeout_s: float, **further: Any) -> Any:
        """Send a request and return the reply.

        Raises WorkerError if the process died or did not reply in time (it is then killed), and RemoteError, with the
        original message, if the request raised an exception there.
        """
        self.stage, self.of = None, ""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": what, **further}).encode() + b"\n")
        except BrokenPipeError:
            raise self._died(what) from None
        deadline = monotonic() + timeout_s
        while True:
            reply = json.loads(self._line(what, deadline, timeout_s))
            if "stage" in reply:
                self.stage, self.of = Stage[reply["stage"]], reply["of"]
                continue
            if "error" in reply:
                raise RemoteError(reply["error"], reply["kind"])
            return reply["answer"]

    def _line(self, what: str, deadline: float, timeout_s: float) -> bytes:
        end = self._answers
        while b"\n" not in self._rest:
            ready, _, _ = select.select([end], [], [], max(0.0, deadline - monotonic()))
            if not ready:
                self.close(at_once=True)
                raise WorkerError(
                    Failure.HANG, f"the process did not reply within {timeout_s:g} s and was killed", self._tail()
                )
            data = os.read(end, 1 << 16)
            if not data:
                raise self._died(what)
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _died(self, what: str) -> WorkerError:
        self.close()
        code = self._process.returncode
        of_session = cause(
            Failure.CRASH if code < 0 else Failure.EXIT,
            -min(0, code),
            wanted=0,
            killed_before=self._killed_before,
        )
        if of_session is not None:
            raise of_session
        kind, how = (
            (Failure.CRASH, f"was killed by {signal.Signals(-code).name}")
            if code < 0
            else (Failure.EXIT, f"ended with status {code}")
        )
        doing = f" while {self.stage.value}{f' on {self.of}' if self.of else ''}" if self.stage else ""
        return WorkerError(kind, f"the process {how}{doing}", self._tail())

    def _tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL))
        return self._log.read().decode(errors="replace").strip()

    def close(self, *, at_once: bool = False) -> None:
        """End the process and wait for it. `at_once` kills it."""
        if at_once:
            self._process.kill()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close(at_once=problem[0] is not None)
        self._log.close()


class RemoteError(TritmarkError, RuntimeError):
    """An exception that a child process raised. `kind` is the name of its type."""

    def __init__(self, text: str, kind: str) -> None:
        self.kind = kind
        super().__init__(text)


def serve(handle: Callable[[str, dict[str, Any], StageTeller], Any]) -> None:
    """Answer requests with `handle(request, arguments, stage)` until the parent closes the pipe; see StageTeller.

    Output that kernels print goes to the log. The first line from the parent is the file descriptor for replies.
    """
    answers = os.fdopen(int(sys.stdin.buffer.readline()), "wb", buffering=0)
    os.set_inheritable(answers.fileno(), False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets the signal too, and closes the pipe

    def say(**reply: Any) -> None:
        answers.write(json.dumps(reply).encode() + b"\n")

    def tell(stage: Stage, of: str = "") -> None:
        say(stage=stage.name, of=of)

    with suppress(BrokenPipeError):
        for line in sys.stdin.buffer:
            asked = json.loads(line)
            what = asked.pop("do")
            try:
                answer = handle(what, asked, tell)
            except Exception as error:
                say(error=str(error) or type(error).__name__, kind=type(error).__name__)
            else:
                say(answer=answer)
