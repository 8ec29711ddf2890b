"""What a candidate's calls leave behind in its process: settings, signals, timers, files, threads, children.

Read from outside, in /proc, wherever that tells; see worker.inside for the rest. Some of it a first call may change,
and no later one: a runtime opens files and maps memory when it is first used. A pool of threads may stay, one less than
the threads that a call may use: one for each library of linear algebra that is loaded, which are all told that number
(see candidate.frameworks), and one of the candidate's own beside them. The rest is the same before the first call and
after the last one. What grows from call to call is the memory dimension's.
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
from tritmark.harness.validate.borrowed import mapped_code
from tritmark.harness.validate.guard_names import Complaint, Guard
from tritmark.harness.validate.trial import BrokenCandidateError, broken
from tritmark.harness.worker.floating import USUAL
from tritmark.harness.worker.inside import FIRST_CALL, Loaded, StateInProcess, inside
from tritmark.harness.worker.shared import MADE

if TYPE_CHECKING:
    from tritmark.harness.worker.workers import Isolated

_ENDING_S = 0.5
"""Seconds in which threads and children that are about to end may do so; nobody waits where nothing is left."""
_MOST = 4
_LIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
_STATUS = {
    "Umask": "the umask",
    "SigBlk": "the blocked signals",
    "NoNewPrivs": "no_new_privs",
    "Seccomp": "seccomp",
    "THP_enabled": "transparent huge pages",
    "VmLck": "the memory that is locked",
}
_FILES = {
    "comm": "the name of the process",
    "oom_score_adj": "the score for want of memory",
    "personality": "the personality",
    "coredump_filter": "the filter of core dumps",
}
"""Files of /proc/PID that hold one setting."""
_SIGNALS = {"SigIgn": "the ignored signals", "SigCgt": "the signals with handlers"}
_OF_THE_C_LIBRARY = 0b11 << 31
"""Signals 32 and 33: glibc takes them for itself when the first thread is made (nptl(7))."""

_STAT = 4096
"""More bytes than /proc/PID/stat has."""
_WRITABLE = re.compile(r"^\S+ .w(?:.s|x.) .*$", re.MULTILINE)
"""Lines of /proc/PID/maps."""
_OPENMP = ("libgomp", "libomp", "libiomp")
_BLAS = re.compile(r"^[^/\n]+(/.*/lib(?:scipy_)?(?:openblas|mkl_rt|blis)[^/\s]*)$", re.MULTILINE)
"""Files of libraries of linear algebra: NumPy's, and where it is loaded SciPy's own."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StateFromSystem:
    """State of a process as the kernel tells it."""

    settings: Mapping[str, str]
    """By what they are called."""
    cores: frozenset[int]
    """Those that the main thread may run on."""
    openmp: bool
    """Whether a runtime of OpenMP is loaded."""
    pools: int
    """How many libraries with a pool of threads for each that a call may use are loaded, at least 1."""
    threads: tuple[str, ...]
    """What each is called."""
    children: tuple[str, ...]
    descriptors: Mapping[int, str]
    """What each points to."""
    shared: frozenset[str]
    """Files that are mapped so that writing changes them."""
    executable: frozenset[str]
    """Mappings that can be written and executed."""
    segments: frozenset[str] = frozenset()
    """System V segments of shared memory that it made, whether they are attached or not."""
    code: frozenset[str] = frozenset()
    """Files whose code is mapped."""

    @staticmethod
    def of(pid: int) -> StateFromSystem:
        """Read all of it. Raises OSError where the process is gone."""
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
    """Watches the process of one worker: made before it is bound, `begin` after the first run, `end` after the last.

    On a device with a memory of its own, whose driver has files, threads and mappings of its
    own, settings only are compared. `worker` None: nothing is. All raise BrokenCandidateError where the process does
    not tell.
    """

    def __init__(self, worker: Isolated | None, threads: int = 1) -> None:
        self._worker = worker
        self.threads = threads
        """The most that a call was allowed."""
        self.code: frozenset[str] = frozenset()
        """Files whose code was mapped after the first run, or at the end; see validate.borrowed."""
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
        """What a first call may change is as it stays from now on. Again called, it does nothing."""
        if self._begin is None:
            self._begin = self._both()
            self.code |= self._begin[1].code

    def end(self, *, launches: bool = True) -> list[str]:
        """What was left changed, in words; nothing where the process is gone, which has been told. Without `launches`
        there are some yet, which may have threads."""
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
        # By name, as the process tells them; where it tells nothing, the kernel does.
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
                f"it left {len(now.threads)} threads, and found {len(first.threads)}; of {self.threads} threads one "
                f"calls ({_counted(now.threads)})"
            )
        left = _new(first.children, now.children)
        if left:
            faults.append(f"it left {len(left)} child processes: {_listed(left)}")
        opened = [target for number, target in now.descriptors.items() if begun.descriptors.get(number) != target]
        if opened:
            before = len(begun.descriptors)
            faults.append(f"it left {len(opened)} descriptors open, beside the {before} it found: {_listed(opened)}")
        closed = [target for number, target in begun.descriptors.items() if number not in now.descriptors]
        if closed:
            faults.append(f"it closed {len(closed)} descriptors that it found: {_listed(closed)}")
        for what, before_, after in (
            ("mappings that are shared", begun.shared, now.shared),
            ("mappings that are writable and executable", begun.executable, now.executable),
            ("segments of System V", begun.segments, now.segments),
        ):
            if after - before_:
                faults.append(f"it left {len(after - before_)} {what}: {_listed(sorted(after - before_))}")
        return faults

    def _too_many(self, now: StateFromSystem, pools: int) -> bool:
        """More than each library of linear algebra may have, and than a pool of the candidate's own beside theirs."""
        own = self.threads - 1
        return len(now.threads) - len(self._found[1].threads) > max(now.pools * own, own and own + pools)

    def _settled(self) -> tuple[StateInProcess, StateFromSystem]:
        """The state once what is about to end has ended."""
        until = monotonic() + _ENDING_S
        while True:
            found = self._both()
            if monotonic() > until or not (
                self._too_many(found[1], found[0].pools) or _new(self._found[1].children, found[1].children)
            ):
                return found
            sleep(0.01)

    def _both(self) -> tuple[StateInProcess, StateFromSystem]:
        if self._worker is None:
            return _NOTHING
        return self._inside(), self._outside()

    def _inside(self) -> StateInProcess:
        assert self._worker is not None
        try:
            found: StateInProcess = self._worker.call("telling its state", inside)
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
            self._inside()  # which says what became of it
            raise BrokenCandidateError(
                f"the state of the candidate's process cannot be read: {error}", Guard.STATE
            ) from error


@contextmanager
def others_start_threads(worker: object) -> Iterator[None]:
    """Threads that a process has more afterwards are not its kernel's, but those of a peer, or of probes."""
    process, pid = getattr(worker, "process", None), getattr(worker, "pid", None)
    before = _threads(pid) if pid is not None else ()
    yield
    if pid is None or process is None or process.found is None:
        return
    try:
        more = len(_threads(pid)) - len(before)
    except OSError:  # it is gone, and what comes next starts a fresh one
        return
    within, without = process.found
    process.found = within, replace(without, threads=without.threads + ("another's",) * max(0, more))


_NOTHING = StateInProcess(), StateFromSystem({}, frozenset(), False, 1, (), (), {}, frozenset(), frozenset())


def _changed(what: str, before: str, after: str) -> str:
    return f"it left {what} at {after}, and found {before}"


def _listed(things: Any) -> str:
    found = list(things)
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ", ".join(found[:_MOST]) + more


def _threads(pid: int) -> tuple[str, ...]:
    """What the threads of a process are called. Raises OSError where it is gone."""
    found = []
    for each in os.listdir(f"/proc/{pid}/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            found.append(Path(f"/proc/{pid}/task/{each}/comm").read_text(errors="replace").strip())
    return tuple(found)


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
        # Of a library that was loaded since then there is none before.
        was = (begun if name in FIRST_CALL else before).settings.get(name, value)
        if was != value:
            faults.append(_changed(name, was, value))
    return faults


def _first_place(cores: frozenset[int]) -> frozenset[int]:
    """Where OpenMP puts the thread that calls it, if it binds threads: the first core, with its siblings."""
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
        found["the class of its input and output"] = " ".join(map(str, psutil.Process(pid).ionice()))
    found |= {
        f"the limit {name}": "{} of {}".format(*resource.prlimit(pid, number)) for name, number in _LIMITS.items()
    }
    for file, called in _FILES.items():
        with suppress(OSError):  # a kernel without it, or one that does not tell
            found[called] = Path(f"/proc/{pid}/{file}").read_text().strip()
    with suppress(OSError):  # a kernel without checkpoints
        found["the number of POSIX timers"] = str(Path(f"/proc/{pid}/timers").read_text().count("ID:"))
    return found


def _children(pid: int) -> tuple[str, ...]:
    """Processes below that one, with their names: its own, and those whose parent has ended, as the worker takes
    these in."""
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
    """Open files but the harness's own blocks, each of which is there once at the most."""
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
    """Files that are mapped shared and writable, mappings that can be written and executed, whether there is a
    runtime of OpenMP, and how many libraries of linear algebra there are."""
    shared, executable = set(), set()
    for each in _WRITABLE.findall(given):
        addresses, access, _, _, inode, *path = each.split(maxsplit=5)
        name = path[0] if path else "anonymous memory"
        if access.endswith("s") and int(inode) not in MADE:
            shared.add(f"{name} (inode {inode})")
        if "x" in access:
            executable.add(f"{name} at {addresses}")  # with its end: Linux may join what lies side by side
    pools = len(set(_BLAS.findall(given)))
    return frozenset(shared), frozenset(executable), any(known in given for known in _OPENMP), max(1, pools)
