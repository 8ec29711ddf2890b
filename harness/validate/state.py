"""Changes that a candidate's calls leave in its process: settings, signals, timers, files, threads, children.

Read from outside, in /proc, where that is possible; see worker.inside for the rest. A first call may change some of it,
and later calls may not: a runtime opens files and maps memory at its first use. Pools of threads may stay, each one
thread smaller than the thread count of a call: one pool for each loaded library of linear algebra (all are set to that
count, see candidate.frameworks), and one of the candidate. Everything else must be the same before the first call and
after the last one. Growth from call to call belongs to the memory dimension.
"""

from __future__ import annotations

import os
import re
import resource
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from tritmark.harness.errors import CandidateError, WorkerError
from tritmark.harness.machine.cpu import BINDING, CPUS
from tritmark.harness.machine.files import SYS, line
from tritmark.harness.text.units import counted
from tritmark.harness.validate.borrowed import mapped_code
from tritmark.harness.validate.guard_names import Complaint, Guard
from tritmark.harness.validate.trial import BrokenCandidateError, broken
from tritmark.harness.worker.floating import USUAL
from tritmark.harness.worker.inside import FIRST_CALL, Loaded, StateInProcess, inside
from tritmark.harness.worker.shared import MADE

if TYPE_CHECKING:
    from tritmark.harness.worker.workers import Isolated

_ENDING_S = 0.5
"""Seconds that ending threads and children get to exit. There is no wait if none is left."""
_CROWDED_S = 20.0
"""The same while a thread waits for a core: on a machine with much other work, one that ends may wait for seconds."""
_ASLEEP = frozenset("SIT")
"""States of threads in /proc that wait for something other than a core."""
_MOST = 4
_LIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
_STATUS = {
    "Umask": "the umask",
    "SigBlk": "the blocked signals",
    "NoNewPrivs": "no_new_privs",
    "Seccomp": "seccomp",
    "THP_enabled": "transparent huge pages",
    "VmLck": "the locked memory",
}
_FILES = {
    "comm": "the name of the process",
    "oom_score_adj": "the OOM score adjustment",
    "personality": "the personality",
    "coredump_filter": "the core dump filter",
}
"""Files of /proc/PID that hold one setting."""
_SIGNALS = {"SigIgn": "the ignored signals", "SigCgt": "the signals with handlers"}
_OF_THE_C_LIBRARY = 0b11 << 31
"""Signals 32 and 33: glibc uses them from the first thread on (nptl(7))."""

_STAT = 4096
"""More bytes than /proc/PID/stat has."""
_WRITABLE = re.compile(r"^\S+ .w(?:.s|x.) .*$", re.MULTILINE)
"""Lines of /proc/PID/maps."""
_OPENMP = ("libgomp", "libomp", "libiomp")
_BLAS = re.compile(r"^[^/\n]+(/.*/lib(?:scipy_)?(?:openblas|mkl_rt|blis)[^/\s]*)$", re.MULTILINE)
"""Files of libraries of linear algebra: NumPy's, and SciPy's own if it is loaded."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StateFromSystem:
    """State of a process as the kernel reports it."""

    settings: Mapping[str, str]
    """By their names in messages."""
    cores: frozenset[int]
    """Cores that the main thread may run on."""
    openmp: bool
    """Whether an OpenMP runtime is loaded."""
    pools: int
    """Number of loaded libraries with a thread pool of their own, at least 1."""
    threads: tuple[str, ...]
    """Name of each thread."""
    children: tuple[str, ...]
    descriptors: Mapping[int, str]
    """Target of each descriptor."""
    shared: frozenset[str]
    """Files with shared writable mappings."""
    executable: frozenset[str]
    """Mappings that are writable and executable."""
    segments: frozenset[str] = frozenset()
    """System V shared memory segments that it made, attached or not."""
    code: frozenset[str] = frozenset()
    """Files with mapped code."""

    @staticmethod
    def of(pid: int) -> StateFromSystem:
        """Read the whole state. Raises OSError if the process has ended."""
        maps = Path(f"/proc/{pid}/maps").read_text()
        shared, executable, openmp, pools = _maps(maps)
        return StateFromSystem(
            _settings(pid),
            frozenset(os.sched_getaffinity(pid)),
            openmp,
            pools,
            _threads(pid),
            _children(pid),
            _descriptors(pid),
            shared,
            executable,
            _segments(pid),
            mapped_code(maps),
        )


class StateWatch:
    """Watches the process of one worker. Make it before binding; call `begin` after the first run and `end` after the
    last.

    On a device with its own memory, only settings are compared: its driver has its own files, threads and mappings.
    `worker` None: nothing is compared. All methods raise BrokenCandidateError if the process does not report.
    """

    def __init__(self, worker: Isolated | None, threads: int = 1) -> None:
        self._worker = worker
        self.threads = threads
        """Most threads that a call was allowed."""
        self.code: frozenset[str] = frozenset()
        """Files with code mapped after the first run, or at the end; see validate.borrowed."""
        self._begin: tuple[StateInProcess, StateFromSystem] | None = None
        self._process = None
        if worker is None:
            return
        within = self._inside()
        self._process = worker.process
        assert worker.process is not None
        if worker.process.found is None:
            worker.process.found = within, self._outside()
        self._found: tuple[StateInProcess, StateFromSystem] = worker.process.found

    def begin(self) -> None:
        """Take the state that a first call may change as the baseline. Further calls do nothing."""
        if self._begin is None:
            self._begin = self._both()
            self.code |= self._begin[1].code

    def end(self, *, launches: bool = True) -> list[str]:
        """Descriptions of all changes. Empty if the process has ended, which is reported elsewhere. Without `launches`,
        launches still exist and may own threads."""
        if self._worker is None or self._worker.process is not self._process or not self._worker.alive:
            return []
        within, without = self._settled() if launches else self._both()
        self.code |= without.code
        first_within, first = self._found
        begun_within, begun = self._begin or self._found
        settings = {
            name: _changed(name, first.settings.get(name, "none"), value)
            for name, value in without.settings.items()
            if first.settings.get(name) != value
        }
        # By name, as the process reports them; else as the kernel does.
        masks = [settings.pop(name) for name in _SIGNALS.values() if name in settings]
        faults = [*_floating(within), *settings.values(), *_timers(first_within, within)]
        if self._worker.pid is not None:
            faults += _handlers(first_within, within) or masks
            faults += _loaded(within.first_bound or begun_within.loaded, begun_within.loaded, within.loaded)
            faults += self._processes(first, begun, without, within.pools if launches else None)
        return [str(Complaint(Guard.STATE, fault)) for fault in faults]

    def _processes(
        self, first: StateFromSystem, begun: StateFromSystem, now: StateFromSystem, pools: int | None
    ) -> list[str]:
        faults = []
        if now.cores not in {first.cores, _first_place(first.cores) if now.openmp else first.cores}:
            faults.append(
                _changed(
                    "the cores that its thread may use",
                    _listed(map(str, sorted(first.cores))),
                    _listed(map(str, sorted(now.cores))),
                )
            )
        if pools is not None and self._too_many(now, pools):
            faults.append(
                f"it left {counted(len(now.threads), 'thread')} (before: {len(first.threads)}); a pool may have at "
                "most "
                f"{self.threads - 1} beside the calling thread ({_counted(now.threads)})"
            )
        left = _new(first.children, now.children)
        if left:
            faults.append(f"it left {counted(len(left), 'child process', 'child processes')}: {_listed(left)}")
        opened = [target for number, target in now.descriptors.items() if begun.descriptors.get(number) != target]
        if opened:
            before = len(begun.descriptors)
            faults.append(f"it left {len(opened)} descriptors open (before: {before}): {_listed(opened)}; close them")
        closed = [target for number, target in begun.descriptors.items() if number not in now.descriptors]
        if closed:
            faults.append(f"it closed {len(closed)} descriptors that were open before: {_listed(closed)}")
        for what, before_, after in (
            ("shared mappings", begun.shared, now.shared),
            ("writable executable mappings", begun.executable, now.executable),
            ("System V segments", begun.segments, now.segments),
        ):
            if after - before_:
                faults.append(f"it left {len(after - before_)} {what}: {_listed(sorted(after - before_))}")
        return faults

    def _too_many(self, now: StateFromSystem, pools: int) -> bool:
        """Whether there are more threads than the pools of the linear algebra libraries and one pool of the candidate
        admit."""
        own = self.threads - 1
        return len(now.threads) - len(self._found[1].threads) > max(now.pools * own, own and own + pools)

    def _settled(self) -> tuple[StateInProcess, StateFromSystem]:
        """The state after ending threads and children have exited."""
        begin = awake = monotonic()
        while True:
            found, now = self._both(), monotonic()
            if self._awake():
                awake = now
            if (
                not (self._too_many(found[1], found[0].pools) or _new(self._found[1].children, found[1].children))
                or now - begin > _CROWDED_S
                or now - awake > _ENDING_S
            ):
                return found
            sleep(0.01)

    def _awake(self) -> bool:
        """Whether a thread beside the first runs, waits for a core, or ends."""
        assert self._worker is not None
        process = self._worker.process
        pid = None if process is None else process.pid
        return pid is not None and any(state not in _ASLEEP for state in _states(pid))

    def _both(self) -> tuple[StateInProcess, StateFromSystem]:
        if self._worker is None:
            return _NOTHING
        return self._inside(), self._outside()

    def _inside(self) -> StateInProcess:
        assert self._worker is not None
        try:
            found: StateInProcess = self._worker.call("reading its state", inside)
        except (CandidateError, WorkerError) as error:
            raise broken(error) from error
        return found

    def _outside(self) -> StateFromSystem:
        assert self._worker is not None
        assert self._worker.process is not None
        assert self._worker.process.pid is not None
        try:
            return StateFromSystem.of(self._worker.process.pid)
        except OSError as error:
            self._inside()  # raises the cause
            raise BrokenCandidateError(
                f"the state of the candidate's process cannot be read: {error}", Guard.STATE
            ) from error


@contextmanager
def others_start_threads(worker: object) -> Iterator[None]:
    """Threads that the process gains in this context belong to a peer or to probes, and not to its kernel."""
    process, pid = getattr(worker, "process", None), getattr(worker, "pid", None)
    before = _threads(pid) if pid is not None else ()
    yield
    if pid is None or process is None or process.found is None:
        return
    try:
        more = len(_threads(pid)) - len(before)
    except OSError:  # it has ended, and the next call starts a fresh one
        return
    within, without = process.found
    process.found = within, replace(without, threads=without.threads + ("another's",) * max(0, more))


_NOTHING = StateInProcess(), StateFromSystem({}, frozenset(), False, 1, (), (), {}, frozenset(), frozenset())


def _changed(what: str, before: str, after: str) -> str:
    return f"it changed {what} from {before} to {after}; restore it before the call returns"


def _listed(things: Any) -> str:
    found = list(things)
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ", ".join(found[:_MOST]) + more


def _threads(pid: int) -> tuple[str, ...]:
    """Names of the threads of a process. Raises OSError if it has ended."""
    found = []
    for each in os.listdir(f"/proc/{pid}/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found.append(Path(f"/proc/{pid}/task/{each}/comm").read_text(errors="replace").strip())
    return tuple(found)


def _states(pid: int) -> Iterator[str]:
    """The states of the threads of a process beside its first, such as R and S."""
    for each in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        with suppress(OSError):
            if each.name != str(pid):
                yield (each / "stat").read_text(errors="replace").rpartition(") ")[2][0]


def _counted(names: tuple[str, ...]) -> str:
    return _listed(f"{count} {name}" for name, count in Counter(names).most_common())


def _new(before: tuple[T, ...], after: tuple[T, ...]) -> list[T]:
    return [each for each in after if each not in before]


def _floating(within: StateInProcess) -> list[str]:
    usual = USUAL.described()
    return list(
        dict.fromkeys(
            _changed(what, usual[what], value)
            for found in within.floating
            for what, value in found.described().items()
            if value != usual[what]
        )
    )


def _handlers(first: StateInProcess, now: StateInProcess) -> list[str]:
    faults = []
    for number, address in now.handlers.items():
        before = first.handlers.get(number, 0)
        if address != before:
            faults.append(_changed(f"the handler of {_signal(number)}", _handler(before), _handler(address)))
    return faults


def _handler(address: int) -> str:
    return {0: "the default", 1: "ignored"}.get(address, f"{address:#x}")


def _signal(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _timers(first: StateInProcess, now: StateInProcess) -> list[str]:
    def state_of(timer: tuple[bool, float]) -> str:
        return f"running every {timer[1]:g} s" if timer[1] else "running" if timer[0] else "off"

    return [
        _changed(name, state_of(first.timers.get(name, (False, 0.0))), state_of(timer))
        for name, timer in now.timers.items()
        if timer != first.timers.get(name, (False, 0.0))
    ]


def _loaded(before: Loaded, begun: Loaded, now: Loaded) -> list[str]:
    faults = [
        _changed(f"{name} in the environment", repr(before.environment.get(name)), repr(now.environment.get(name)))
        for name in sorted({*before.environment, *now.environment})
        if before.environment.get(name) != now.environment.get(name)
    ]
    if before.locale != now.locale:
        faults.append(_changed("the locale", before.locale, now.locale))
    for name, value in now.settings.items():
        # A library that was loaded later has no earlier setting.
        was = (begun if name in FIRST_CALL else before).settings.get(name, value)
        if was != value:
            faults.append(_changed(name, was, value))
    return faults


def _first_place(cores: frozenset[int]) -> frozenset[int]:
    """Cores on which OpenMP puts the calling thread if it binds threads: the first core, with its siblings."""
    if os.environ.get(BINDING[0], "false").lower() == "false":
        return cores
    reported = line(SYS / CPUS / f"cpu{min(cores)}" / "topology" / "thread_siblings_list") or str(min(cores))
    siblings: set[int] = set()
    for part in reported.split(","):
        begin, _, end = part.partition("-")
        siblings.update(range(int(begin), int(end or begin) + 1))
    return frozenset(siblings) & cores


def _settings(pid: int) -> dict[str, str]:
    found = {}
    for each in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = each.partition(":")
        if name in _SIGNALS:
            found[_SIGNALS[name]] = f"{int(value, 16) & ~_OF_THE_C_LIBRARY:016x}"
        elif name in _STATUS:
            found[_STATUS[name]] = value.strip()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    found |= {"the nice value": fields[16], "the scheduling policy": fields[38], "the real-time priority": fields[37]}
    found["the working directory"] = os.readlink(f"/proc/{pid}/cwd")
    with suppress(psutil.Error):
        found["the I/O priority class"] = " ".join(map(str, psutil.Process(pid).ionice()))
    found |= {
        f"the limit {name}": "{} of {}".format(*resource.prlimit(pid, number)) for name, number in _LIMITS.items()
    }
    for file, called in _FILES.items():
        with suppress(OSError):  # not supported or not readable
            found[called] = Path(f"/proc/{pid}/{file}").read_text().strip()
    with suppress(OSError):  # a kernel without checkpoints
        found["the number of POSIX timers"] = str(Path(f"/proc/{pid}/timers").read_text().count("ID:"))
    return found


def _children(pid: int) -> tuple[str, ...]:
    """Child processes with their names: its own, and orphans, whose parent the worker becomes."""
    found = []
    for each in os.listdir("/proc"):
        if not each.isdecimal():
            continue
        with suppress(OSError), open(f"/proc/{each}/stat", "rb", 0) as file:
            name, _, rest = file.read(_STAT).partition(b" (")[2].rpartition(b")")
            if int(rest.split(maxsplit=2)[1]) == pid:
                found.append(f"{name.decode(errors='replace')} (process {each})")
    return tuple(found)


def _descriptors(pid: int) -> dict[int, str]:
    """Open files except the harness's own blocks, each of which is open at most once."""
    found: dict[int, str] = {}
    ours: set[int] = set()
    for each in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{each}"
        with suppress(OSError):
            target, inode = os.readlink(path), os.stat(path).st_ino
            if target.startswith("/memfd:tritmark") and inode in MADE - ours:
                ours.add(inode)
                continue
            found[int(each)] = target
    return found


def _segments(pid: int) -> frozenset[str]:
    with suppress(OSError, ValueError, IndexError):  # a kernel without them
        rows = [each.split() for each in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
        return frozenset(f"segment {row[1]} of {row[3]} bytes" for row in rows if int(row[4]) == pid)
    return frozenset()


def _maps(given: str) -> tuple[frozenset[str], frozenset[str], bool, int]:
    """Files with shared writable mappings, writable executable mappings, whether an OpenMP runtime is loaded, and the
    number of libraries of linear algebra."""
    shared, executable = set(), set()
    for each in _WRITABLE.findall(given):
        addresses, access, _, _, inode, *path = each.split(maxsplit=5)
        name = path[0] if path else "anonymous memory"
        if access.endswith("s") and int(inode) not in MADE:
            shared.add(f"{name} (inode {inode})")
        if "x" in access:
            executable.add(f"{name} at {addresses}")  # with its end: Linux may merge adjacent mappings
    pools = len(set(_BLAS.findall(given)))
    return frozenset(shared), frozenset(executable), any(known in given for known in _OPENMP), max(1, pools)
