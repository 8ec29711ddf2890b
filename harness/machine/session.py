"""What the session that tritmark was started in allows its processes: limits (`ulimit`, setrlimit(2)) and what a system
usually has mounted. A kernel is never blamed for what is missing here."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from tritmark.harness.errors import BadEnvironmentError, Failure
from tritmark.harness.machine.cpu import affinity
from tritmark.harness.machine.files import line
from tritmark.harness.machine.memory import total

PROC = Path("/proc")

_FILES, _LEAST_FILES = 1024, 64
"""Open files that a command wants, and that it cannot do without: each worker is a pipe, a log and shared memory."""
_STACK = 8 << 20
"""Bytes of a stack as Linux grants them by default."""
_LEAST_FILE = 16 << 20
"""Bytes that a file may have at the least: shared memory, Records and compiled kernels are files."""
LEAST_ADDRESSES = 3 << 29
"""Bytes of address space beyond what is mapped, without which no worker can judge."""
_PROCESSES, _PROCESSES_OF_CORE = 16, 4
_CPU_LEFT_S = 2
"""Seconds between the signal that can be met and the one that cannot."""


def lift() -> None:
    """Raise soft limits towards the hard ones where the soft ones are lower than what a command wants; what it starts
    inherits them. Of the time of the CPU the soft limit comes before the hard one, so that it can be reported."""
    for which, wanted in (
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_STACK, _STACK),
        (resource.RLIMIT_FSIZE, resource.RLIM_INFINITY),
        (resource.RLIMIT_NPROC, resource.RLIM_INFINITY),
    ):
        soft, hard = resource.getrlimit(which)
        least = _least(wanted, hard)
        if _least(soft, least) != least:
            with suppress(OSError, ValueError):
                resource.setrlimit(which, (least, hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard not in {resource.RLIM_INFINITY, 0} and soft == hard > _CPU_LEFT_S:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CPU, (hard - _CPU_LEFT_S, hard))


def must_suffice(proc: Path = PROC) -> None:
    """Raises BadEnvironmentError where processes that judge kernels cannot be had here."""
    try:
        tempfile.gettempdir()
    except OSError as error:
        raise BadEnvironmentError(
            f"there is no folder for temporary files ({error.strerror})",
            next_step="set TMPDIR to one that can be written",
        ) from None
    if not (proc / "self" / "fd").is_dir():
        raise BadEnvironmentError(
            f"{proc} does not show this process", next_step=f"mount it: mount -t proc proc {proc}"
        )
    try:
        os.close(os.memfd_create("tritmark"))
    except OSError as error:
        raise BadEnvironmentError(
            f"shared memory cannot be made: memfd_create: {error.strerror}",
            next_step="free a descriptor (ulimit -n), or allow memfd_create in the sandbox",
        ) from None
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _below(files, _LEAST_FILES):
        raise _too_low("open files", "-n", str(files), str(_LEAST_FILES))
    file, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if _below(file, _LEAST_FILE):
        raise _too_low("bytes of a file", "-f", str(file), str(_LEAST_FILE))
    for which, option in ((resource.RLIMIT_AS, "-v"), (resource.RLIMIT_DATA, "-d")):
        allowed, _ = resource.getrlimit(which)
        if _below(allowed, mapped(proc) + LEAST_ADDRESSES):
            raise _too_low("bytes of address space", option, str(allowed), str(mapped(proc) + LEAST_ADDRESSES))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    wanted = _PROCESSES + _PROCESSES_OF_CORE * len(affinity())
    if os.getuid() and _below(allowed, (there := tasks()) + wanted):
        raise _too_low(
            "processes and threads of this user", "-u", f"{allowed} and {there} are there", str(there + wanted)
        )


def address_space(wanted: int) -> tuple[int, int]:
    """The limits for RLIMIT_AS of a process that may map `wanted` bytes: only the soft one is lowered, the hard one
    stays as it was inherited."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    return _least(wanted, hard), hard


def cause(kind: Failure, died_of: int, *, wanted: int, killed_before: int | None) -> BadEnvironmentError | None:
    """What of the session ended a process, or kept memory from it; None where nothing of the session can have.

    `died_of` is the signal that ended it, 0 where none did; `wanted` the bytes of address space that it was to have, 0
    for as many as the machine has memory; `killed_before` what `killed_for_memory` gave when it was started.
    """
    seconds, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if died_of in {signal.SIGXCPU, signal.SIGKILL} and seconds != resource.RLIM_INFINITY:
        return BadEnvironmentError(
            f"a limit of {seconds} s of CPU time ended the process of a kernel", next_step="raise it: ulimit -t"
        )
    now = killed_for_memory()
    if died_of == signal.SIGKILL and killed_before is not None and now is not None and now > killed_before:
        return BadEnvironmentError(
            "the system ended the process of a kernel for want of memory",
            next_step="give the machine or the container more memory, or end what else runs there",
        )
    if kind not in {Failure.MEMORY, Failure.CRASH, Failure.EXIT}:
        return None
    for which, option in ((resource.RLIMIT_AS, "-v"), (resource.RLIMIT_DATA, "-d")):
        _, allowed = resource.getrlimit(which)
        if _below(allowed, wanted or total()):
            return BadEnvironmentError(
                f"the process of a kernel ended or got no memory under a limit of {allowed} bytes of address space",
                next_step=f"raise it, or take it away: ulimit {option} unlimited",
            )
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if kind is Failure.CRASH and _below(stack, _STACK):
        return _too_low("bytes of a stack, and the process of a kernel crashed,", "-s", str(stack), str(_STACK))
    return None


def killed_for_memory(proc: Path = PROC) -> int | None:
    """How many processes the system has ended for want of memory, those of control groups too; None where it does not
    tell."""
    for each in (line(proc / "vmstat") or "").splitlines():
        name, _, count = each.partition(" ")
        if name == "oom_kill":
            return int(count)
    return None


def mapped(proc: Path = PROC) -> int:
    """Bytes of address space that this process has mapped; 0 where it is not told."""
    return int((line(proc / "self" / "statm") or "0").split()[0]) * resource.getpagesize()


def tasks() -> int:
    """Processes and threads of this user, as far as this process may see them."""
    import psutil

    mine = os.getuid()
    found = 0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found += process.num_threads() if process.uids().real == mine else 0
    return found


def _below(limit: int, wanted: int) -> bool:
    return limit != resource.RLIM_INFINITY and limit < wanted


def _least(one: int, other: int) -> int:
    """The lower of two limits."""
    return min((each for each in (one, other) if each != resource.RLIM_INFINITY), default=resource.RLIM_INFINITY)


def _too_low(what: str, option: str, found: str, legal: str) -> BadEnvironmentError:
    return BadEnvironmentError(
        f"the limit of {what} is {found}, and {legal} are needed", next_step=f"raise it: ulimit {option}"
    )
