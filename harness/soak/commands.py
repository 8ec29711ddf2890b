"""Runs commands of tritmark as a user does: a process of its own, in a session of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from tritmark.harness.worker.process import LOG

LIMIT_S = 180.0
"""Seconds after which a command counts as one that never ends."""
_GONE_S = 15.0
_TRACEBACK = "Traceback (most recent call last)"
_SHOWN = 1500


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that ended, or was ended."""

    status: int
    """The exit status, or the negative number of a signal."""
    text: str
    """All that it wrote."""
    seconds: float
    endless: bool = False
    left: int = 0
    """Its processes that still lived some seconds later."""

    def died(self, legal: frozenset[int]) -> str:
        """How the harness died: "" if it ended with one of these exit statuses and left nothing behind."""
        if self.endless:
            return f"it did not end within {LIMIT_S:g} s"
        if _TRACEBACK in self.text:
            return "it ended with a traceback"
        if self.status not in legal:
            return f"it ended with {'signal' if self.status < 0 else 'exit status'} {abs(self.status)}"
        return f"it left {self.left} processes behind" if self.left else ""

    @property
    def shown(self) -> str:
        """The end of what it wrote."""
        return self.text[-_SHOWN:]


def run(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    address_space_kib: int = 0,
    meanwhile: Callable[[subprocess.Popen[bytes]], None] = lambda process: None,
) -> Ended:
    """Run Python with these arguments in `folder`, and wait for its end. `meanwhile` is called as soon as it runs."""
    command = [sys.executable, "-P", *arguments]
    if address_space_kib:
        # A shell sets the limit: code between fork and exec is not safe in a process with threads.
        command = ["sh", "-c", f'ulimit -v {address_space_kib}; exec "$@"', "sh", *command]
    began = monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        endless = False
        try:
            meanwhile(process)
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            endless = True
        finally:
            left = 0 if endless else _wait_for(process.pid)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        seconds = monotonic() - began
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    return Ended(process.returncode, text, seconds, endless, left)


def _wait_for(session: int) -> int:
    """Wait until no process of the session lives, some seconds at most. Returns the number of those that do."""
    end = monotonic() + _GONE_S
    while (left := len(_of_session(session))) and monotonic() < end:
        sleep(0.05)
    return left


def _of_session(session: int) -> list[int]:
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # After the name, which may have blanks and brackets: state, parent, group, session.
            fields = (each / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] not in {"Z", "X"}:
                found.append(int(each.name))
    return found


def workers(session: int) -> list[int]:
    """The workers of a command, and its judges that have some: processes with a worker's log, except the command
    itself."""
    return [pid for pid in _of_session(session) if pid != session and has_log(pid)]


def is_worker(pid: int) -> bool:
    """Whether a worker's log is the standard error of a process; a judge holds the logs of its workers."""
    with suppress(OSError):
        return LOG in os.readlink(f"/proc/{pid}/fd/2")
    return False


def has_log(pid: int) -> bool:
    """Whether a process has a worker's log. A judge that is starting looks like a worker but has no log."""
    with suppress(OSError):
        return any(LOG in os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd"))
    return False
