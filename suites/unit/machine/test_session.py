"""What limits of a session mean for processes: what is lifted, refused and blamed."""

from __future__ import annotations

import pickle
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tritmark.harness.errors import BadEnvironmentError, Failure, failure_of
from tritmark.harness.machine import session

INFINITY = resource.RLIM_INFINITY
Limits = dict[int, tuple[int, int]]
PageContext = Callable[[Limits], None]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> PageContext:
    def limits(told: Limits) -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda which: told.get(which, (INFINITY, INFINITY)))

    return limits


@pytest.mark.parametrize(
    ("hard", "wanted", "limits"),
    [
        (INFINITY, 1 << 33, (1 << 33, INFINITY)),
        (1 << 34, 1 << 33, (1 << 33, 1 << 34)),
        (1 << 32, 1 << 33, (1 << 32, 1 << 32)),
    ],
)
def test_the_hard_limit_is_kept(given: PageContext, hard: int, wanted: int, limits: tuple[int, int]) -> None:
    given({resource.RLIMIT_AS: (1 << 20, hard)})
    assert session.address_space(wanted) == limits


def test_soft_limits_are_raised_in_a_process_of_its_own() -> None:
    code = """
import resource as r
from tritmark.harness.machine.session import lift
r.setrlimit(r.RLIMIT_NOFILE, (40, 4096)); r.setrlimit(r.RLIMIT_STACK, (1 << 20, 4 << 20))
r.setrlimit(r.RLIMIT_CPU, (90, 90)); r.setrlimit(r.RLIMIT_FSIZE, (1 << 20, 1 << 30))
lift()
print(*(r.getrlimit(each) for each in (r.RLIMIT_NOFILE, r.RLIMIT_STACK, r.RLIMIT_CPU, r.RLIMIT_FSIZE)))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == f"(1024, 4096) ({4 << 20}, {4 << 20}) (88, 90) ({1 << 30}, {1 << 30})"


@pytest.mark.parametrize(
    ("which", "limit", "said"),
    [
        (resource.RLIMIT_NOFILE, 63, "open files is 63; tritmark needs 64; next: raise it: ulimit -n"),
        (resource.RLIMIT_FSIZE, 1 << 20, "bytes of a file is 1048576"),
        (resource.RLIMIT_AS, 1 << 30, "bytes of address space is 1073741824"),
        (resource.RLIMIT_DATA, 1 << 30, "bytes of address space is 1073741824"),
    ],
)
def test_too_low_a_limit_is_named(given: PageContext, which: int, limit: int, said: str) -> None:
    given({})
    session.must_suffice()
    given({which: (limit, limit)})
    with pytest.raises(BadEnvironmentError, match=said):
        session.must_suffice()


@pytest.mark.parametrize("which", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_too_little_to_import_is_named_for_every_command(given: PageContext, which: int) -> None:
    least = session.least_addresses()
    for enough in (INFINITY, least):
        given({which: (enough, enough)})
        session.must_import()
    given({which: (least - 1, INFINITY)})
    with pytest.raises(BadEnvironmentError, match=f"address space is {least - 1}; tritmark needs {least}; next: raise"):
        session.must_import()


def test_a_system_without_proc_or_temporary_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadEnvironmentError, match="does not show this process; next: mount it"):
        session.must_suffice(tmp_path)

    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(BadEnvironmentError, match=r"no folder for temporary files.*next: set TMPDIR"):
        session.must_suffice()


FAR = 1 << 50


@pytest.mark.parametrize(
    ("limits", "kind", "died_of", "killed", "said"),
    [
        ({}, Failure.CRASH, signal.SIGSEGV, 5, ""),
        ({}, Failure.CRASH, signal.SIGKILL, 5, ""),
        ({}, Failure.CRASH, signal.SIGKILL, 4, "ended the process of a kernel because it was out of memory"),
        ({}, Failure.CRASH, signal.SIGSEGV, 4, ""),
        ({}, Failure.CRASH, signal.SIGKILL, None, ""),
        ({resource.RLIMIT_CPU: (9, 11)}, Failure.CRASH, signal.SIGXCPU, 5, "a limit of 9 s of CPU time"),
        ({resource.RLIMIT_CPU: (9, 9)}, Failure.CRASH, signal.SIGKILL, 5, "a limit of 9 s of CPU time"),
        ({resource.RLIMIT_CPU: (9, 9)}, Failure.CRASH, signal.SIGSEGV, 5, ""),
        ({resource.RLIMIT_AS: (FAR, FAR)}, Failure.MEMORY, 0, 5, ""),
        ({resource.RLIMIT_AS: (1 << 31, 1 << 31)}, Failure.MEMORY, 0, 5, "address space; next: .*ulimit -v"),
        ({resource.RLIMIT_AS: (1 << 31, 1 << 31)}, Failure.CRASH, signal.SIGSEGV, 5, "ulimit -v"),
        ({resource.RLIMIT_AS: (1 << 31, 1 << 31)}, Failure.ERROR, 0, 5, ""),
        ({resource.RLIMIT_DATA: (1 << 31, 1 << 31)}, Failure.EXIT, 0, 5, "ulimit -d"),
        ({resource.RLIMIT_STACK: (1 << 18, 1 << 18)}, Failure.CRASH, signal.SIGSEGV, 5, "ulimit -s"),
        ({resource.RLIMIT_STACK: (1 << 18, 1 << 18)}, Failure.EXIT, 0, 5, ""),
    ],
)
def test_what_ended_a_process(
    given: PageContext,
    monkeypatch: pytest.MonkeyPatch,
    limits: Limits,
    kind: Failure,
    died_of: int,
    killed: int | None,
    said: str,
) -> None:
    given(limits)
    monkeypatch.setattr(session, "killed_for_memory", lambda: 5)
    found = session.cause(kind, died_of, wanted=1 << 33, killed_before=killed)
    if not said:
        assert found is None
        return
    with pytest.raises(BadEnvironmentError, match=said):
        raise found or AssertionError("nothing was found")


def test_processes_that_were_ended_for_memory_are_counted(tmp_path: Path) -> None:
    assert session.killed_for_memory(tmp_path) is None
    (tmp_path / "vmstat").write_text("nr_free_pages 7\noom_kill 12\noom_kill_other 3\n")
    assert session.killed_for_memory(tmp_path) == 12


def test_the_error_goes_from_process_to_process() -> None:
    error = BadEnvironmentError("a limit", next_step="raise it")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.found, again.next_step) == (str(error), "a limit", "raise it")
    assert failure_of(error) is Failure.ENVIRONMENT
