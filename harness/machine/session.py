"""Limits of the session that tritmark runs in: `ulimit`, setrlimit(2), required mounts. Their effects never count
against a kernel."""

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
"""Wanted and least limit of open files: each worker has a pipe, a log and shared memory."""
_STACK = 8 << 20
"""The default stack limit of Linux in bytes."""
_LEAST_FILE = 16 << 20
"""The least limit of a file's size in bytes: shared memory, Records and compiled kernels are files."""
LEAST_ADDRESSES = 3 << 29
"""The least address space in bytes, beyond existing mappings, that a worker needs."""
_IMPORTS, _IMPORTS_OF_CORE = 128 << 20, 32 << 20
_PROCESSES, _PROCESSES_OF_CORE = 16, 4
_CPU_LEFT_S = 2
"""Seconds between SIGXCPU, which can be handled, and SIGKILL."""


def lift() -> None:
    """Raise soft limits that are lower than a command wants; child processes inherit them. The soft limit of CPU time
    is set below the hard one, so that it can be reported."""
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


def least_addresses() -> int:
    """The least address space of any command, in bytes."""
    return _IMPORTS + _IMPORTS_OF_CORE * len(affinity())


def must_import() -> None:
    """Raise BadEnvironmentError if there is too little address space to import NumPy: its library for matrices starts a
    thread for each core, and ends the process in various ways if it cannot."""
    least = least_addresses()
    for which, option in ((resource.RLIMIT_AS, "-v"), (resource.RLIMIT_DATA, "-d")):
        allowed, _ = resource.getrlimit(which)
        if _below(allowed, least):
            raise _too_low("bytes of address space", option, str(allowed), str(least))


def must_suffice(proc: Path = PROC) -> None:
    """Raise BadEnvironmentError if processes that judge kernels cannot be started here."""
    try:
        tempfile.gettempdir()
    except OSError as error:
        raise BadEnvironmentError(
            f"there is no folder for temporary files ({error.strerror})",
            next_step="set TMPDIR to a writable folder",
        ) from None
    if not (proc / "self" / "fd").is_dir():
        raise BadEnvironmentError(
            f"{proc} does not show this process", next_step=f"mount it: mount -t proc proc {proc}"
        )
    try:
        os.close(os.memfd_create("tritmark"))
    except OSError as error:
        raise BadEnvironmentError(
            f"shared memory cannot be allocated: memfd_create: {error.strerror}",
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
        raise _too_low("processes and threads of this user", "-u", f"{allowed} and {there} exist", str(there + wanted))


def address_space(wanted: int) -> tuple[int, int]:
    """The limits (soft, hard) of RLIMIT_AS for a process that may map `wanted` bytes. The hard limit stays as
    inherited."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    return _least(wanted, hard), hard


def cause(kind: Failure, died_of: int, *, wanted: int, killed_before: int | None) -> BadEnvironmentError | None:
    """The limit of the session that ended a process or refused it memory; None if no limit did.

    `died_of`: the signal that ended it, or 0. `wanted`: the address space in bytes that it needed; 0: the size of main
    memory. `killed_before`: `killed_for_memory()` at its start.
    """
    seconds, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if died_of in {signal.SIGXCPU, signal.SIGKILL} and seconds != resource.RLIM_INFINITY:
        return BadEnvironmentError(
            f"a limit of {seconds} s of CPU time ended the process of a kernel", next_step="raise it: ulimit -t"
        )
    now = killed_for_memory()
    if died_of == signal.SIGKILL and killed_before is not None and now is not None and now > killed_before:
        return BadEnvironmentError(
            "the system ended the process of a kernel because it was out of memory",
            next_step="give the machine or the container more memory, or end other processes there",
        )
    if kind not in {Failure.MEMORY, Failure.CRASH, Failure.EXIT}:
        return None
    for which, option in ((resource.RLIMIT_AS, "-v"), (resource.RLIMIT_DATA, "-d")):
        _, allowed = resource.getrlimit(which)
        if _below(allowed, wanted or total()):
            return BadEnvironmentError(
                f"the process of a kernel ended or got no memory under a limit of {allowed} bytes of address space",
                next_step=f"raise or remove the limit: ulimit {option} unlimited",
            )
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if kind is Failure.CRASH and _below(stack, _STACK):
        return _too_low("bytes of a stack, and the process of a kernel crashed,", "-s", str(stack), str(_STACK))
    return None


def killed_for_memory(proc: Path = PROC) -> int | None:
    """Number of processes that the out-of-memory killer has ended, including those of control groups; None if the
    system does not report it."""
    for each in (line(proc / "vmstat") or "").splitlines():
        name, _, count = each.partition(" ")
        if name == "oom_kill":
            return int(count)
    return None


def mapped(proc: Path = PROC) -> int:
    """Bytes of address space that this process has mapped; 0 if unknown."""
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
        f"the limit of {what} is {found}; tritmark needs {legal}", next_step=f"raise it: ulimit {option}"
    )
