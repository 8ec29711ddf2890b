"""Starts a command in the sandbox: `python -m tritmark.harness.sandbox JSON COMMAND...` runs it.

JSON has the folders that the command may write (`writable`), those below /tmp that it may read (`readable`), and the
descriptor to which the missing protections are written as JSON (`report`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from tritmark.harness.sandbox import protections
from tritmark.harness.sandbox.inside import INSIDE

_GRACE_S = 10.0
"""Seconds that the launcher has to end what it started."""
NOT_RESTRICTED = "everything that this user may read can be read"
"""What no sandbox here prevents."""


def sandboxed(
    command: Sequence[str],
    *,
    writable: Iterable[Path],
    readable: Iterable[Path] = (),
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> tuple[subprocess.CompletedProcess[str], tuple[str, ...]]:
    """Run a command in the sandbox. Returns how it ended, and the protections that this system lacks.

    `writable` must exist. `readable`: folders below /tmp that must stay there. Raises subprocess.TimeoutExpired.
    """
    reads, writes = os.pipe()
    # The interpreter must stay where it is, too.
    own = [Path(each) for each in {sys.prefix, sys.base_prefix} if Path("/tmp") in Path(each).parents]
    told = {"writable": [*map(str, writable)], "readable": [*map(str, (*readable, *own))], "report": writes}
    launcher = [sys.executable, "-m", __package__, json.dumps(told), *command]
    with os.fdopen(reads) as report:
        try:
            started = subprocess.Popen(
                launcher,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                pass_fds=(writes,),
                env={**os.environ, **(environment or {}), INSIDE: "1"},
            )
        finally:
            os.close(writes)
        with started:
            done = _ended(started, timeout_s)
        text = report.readline()
    return done, tuple(json.loads(text)) if text else ("the sandbox did not start",)


def _ended(started: subprocess.Popen[str], timeout_s: float | None) -> subprocess.CompletedProcess[str]:
    """How the command ended. After the time it ends with all that it started, and TimeoutExpired is raised."""
    try:
        out, err = started.communicate(timeout=timeout_s)
    except BaseException:
        started.terminate()  # the launcher ends them
        try:
            started.communicate(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            started.kill()
        raise
    return subprocess.CompletedProcess(started.args, started.returncode, out, err)


def protect(writable: Sequence[Path], readable: Sequence[Path]) -> Iterator[str]:
    """Take every protection that this system has, and yield those that it lacks."""
    try:
        protections.limit()
    except (OSError, ValueError) as error:
        yield f"limits of resources ({error})"
    try:
        protections.enter_namespaces()
    except OSError as error:
        yield f"own namespaces ({error.strerror}), so no private /tmp"
        try:
            if not protections.landlock(writable):
                yield "no network (Landlock of this Linux does not know TCP)"
        except OSError as missing:
            yield f"no network and no read-only files (Landlock: {missing.strerror})"
        return
    takes: dict[str, Callable[[], None]] = {
        "private /tmp": partial(protections.private_temporary, [*writable, *readable]),
        "read-only files": partial(protections.read_only_except, writable, readable),
        "no disks": protections.hide_disks,
        "no capabilities": protections.drop_capabilities,
    }
    for name, take in takes.items():
        try:
            take()
        except OSError as error:
            yield f"{name} ({error.strerror})"
