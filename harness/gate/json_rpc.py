"""Talking to a process of one's own: a line of JSON for each question, a line for each answer."""

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
    """What a process is about to do, as messages say it."""

    RUNNING_BASE = "running BASE"
    RUNNING_HEAD = "running HEAD"
    COMPARING = "comparing outputs"
    MEASURING_BASE = "measuring BASE"
    MEASURING_HEAD = "measuring HEAD"
    MEASURING = "measuring both by turns"


class StageTeller(Protocol):
    """Reports at once what a process is about to do, and on what, for the case that it dies of it."""

    def __call__(self, stage: Stage, of: str = "") -> None: ...


def environment() -> dict[str, str]:
    """That of a child: the same code as here, wherever it was imported from, and never what lies in the current
    directory; no errors made of warnings, which would be a build's; no choices of `tritmark tune`, which hold for
    one build's code, so that the other's would be launched without."""
    own = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), tuned.SELECT: "off", "PYTHONWARNINGS": ""}
    return os.environ | own


class Child:
    """A process that runs `module` with the arguments and answers lines (see `serve`). Leaving it as a context
    manager ends it."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._killed_before = killed_for_memory()
        with starting():
            self._log = os.fdopen(os.memfd_create("tritmark-gate-log", os.MFD_CLOEXEC), "w+b")
            self._answers, theirs = os.pipe()
            # Answers have a pipe of their own: a sitecustomize may print before any of our code runs.
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
        with suppress(BrokenPipeError):  # asking will say that it has ended
            assert self._process.stdin is not None
            self._process.stdin.write(b"%d\n" % theirs)
        self._rest = b""
        self.stage: Stage | None = None
        """What the process said last that it was about to do."""
        self.of = ""
        """On what, where it said so."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, what: str, timeout_s: float, **further: Any) -> Any:
        """The answer. Raises WorkerError where the process died or did not answer in time (it is gone then),
        UsageError and the like as TritmarkError with the words of the process."""
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
                    Failure.HANG, f"the process did not answer within {timeout_s:g} s and was killed", self._tail()
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
            (Failure.CRASH, f"was ended by {signal.Signals(-code).name}")
            if code < 0
            else (Failure.EXIT, f"ended with status {code}")
        )
        doing = f" while it was {self.stage.value}{f' on {self.of}' if self.of else ''}" if self.stage else ""
        return WorkerError(kind, f"the process {how}{doing}", self._tail())

    def _tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL))
        return self._log.read().decode(errors="replace").strip()

    def close(self, *, at_once: bool = False) -> None:
        """End it and wait for that."""
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
    """What a process of ours raised: `kind` is the exception's type."""

    def __init__(self, text: str, kind: str) -> None:
        self.kind = kind
        super().__init__(text)


def serve(handle: Callable[[str, dict[str, Any], StageTeller], Any]) -> None:
    """Answer the parent until it goes: `handle(question, arguments, stage)`; see StageTeller.

    What kernels print goes to the log; the first line of what is asked is the descriptor that takes the answers.
    """
    answers = os.fdopen(int(sys.stdin.buffer.readline()), "wb", buffering=0)
    os.set_inheritable(answers.fileno(), False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is asked too, and closes the pipe

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
