"""`tritmark run` killed with SIGKILL at random moments: no finished Run is lost, no file is half written, no process
stays behind.

TRITMARK_KILLS says how many times (3 unless told; 200 take some ten minutes). One run is killed, resumed, killed again
and so on until it comes to its end, then the next begins. Odd kills hit the whole process group, even ones the parent
alone: its workers have to see to themselves.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tritmark.harness import verify
from tritmark.harness.record import Record, Run
from tritmark.harness.store import Header, Store, read
from tritmark.kernels.native.cpu import FORCE

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("TRITMARK_KILLS", "3"))
MARK = "TRITMARK_SIGKILL_MARK"
SIZES = range(100, 108)
GONE_S = 10.0
LONGEST_S = 120.0
SUITE = f"""
title = "many small Runs"
[[workloads]]
op = "i2s_quantize"
shapes = [{", ".join(f"{{ n = {n} }}" for n in SIZES)}]
devices = ["cpu"]
"""
# The ceilings of the machine have no part in this and take seconds.
CODE = """
from tritmark.harness import cli
from tritmark.harness.measure import ceilings
ceilings.measure_ceilings = lambda device: []
cli.main()
"""


class Victim:
    """A `tritmark run` in a session of its own, under `out`; every process that it starts carries its mark."""

    def __init__(self, folder: Path, *, resume: bool) -> None:
        self._mark = secrets.token_hex(16)
        environment = {name: value for name, value in os.environ.items() if name != FORCE} | {
            MARK: self._mark,
            "OMP_WAIT_POLICY": "passive",
        }
        command = [
            sys.executable,
            "-c",
            CODE,
            "run",
            "--suite",
            "many.toml",
            "--out",
            "out",
            *(["--resume"] if resume else []),
        ]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, *, group: bool) -> None:
        (os.killpg if group else os.kill)(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def left(self) -> list[str]:
        """Processes of it that still live."""
        mark = f"{MARK}={self._mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            # What has ended, or is another user's, or a zombie, shows no environment.
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes():
                    found.append(f"{folder.name}: {(folder / 'cmdline').read_bytes()[:200]!r}")
        return found

    def require_gone(self) -> None:
        end = time.monotonic() + GONE_S
        while left := self.left():
            assert time.monotonic() < end, f"still alive {GONE_S:g} s later: {left}"
            time.sleep(0.02)


def finished(store: Store) -> dict[str, Run]:
    """The Runs on disk, of the interrupted run and of Records; every file is whole, or this fails."""
    found: dict[str, Run] = {}
    for path in sorted(store.runs.glob("*.partial/*")):
        if path.name == "header.json":
            Header.model_validate_json(path.read_text())
        elif path.name.startswith("run-"):
            run = Run.model_validate_json(path.read_text())
            found[run.id] = run
        else:
            assert path.name == "lock" or (path.name.startswith(".") and path.name.endswith(".tmp")), path
    for path in store.out.glob("html/*.html"):
        assert path.read_text().rstrip().endswith("</html>"), path
    for id in store.records():
        found |= {run.id: run for run in whole(store, id).runs}
    return found


def whole(store: Store, id: str) -> Record:
    """A Record with all of its Runs and the digest that it was with_digest with."""
    checked = verify.verify(store.path(id))
    assert checked.passed, [each.faults for each in checked.checks if each.faults]
    record = read(store.path(id))
    assert record.complete
    sizes = {run.workload.axes["n"] for run in record.runs}
    assert sizes == set(SIZES)
    assert (
        len({run.id for run in record.runs})
        == len(record.runs)
        == len(SIZES) * len({run.kernel for run in record.runs})
    )
    return record


def files(store: Store) -> set[str]:
    """Names of the files of finished Runs, while the folder may come and go."""
    return {name for id in store.partials() for name in listed(store.runs / f"{id}.partial") if name.startswith("run-")}


def listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def seen_until(victim: Victim, store: Store, files_first: int, seconds: float) -> tuple[set[str], bool]:
    """Wait until there are so many files of finished Runs, or a Record, and then so many seconds.

    Returns the files that were there last, and whether the run has ended by itself.
    """
    begun = time.monotonic()
    start = None
    while True:
        now = files(store)
        if start is None and (len(now) >= files_first or (files_first and store.records())):
            start = time.monotonic()
        if victim.process.poll() is not None:
            return now, True
        if start is not None and time.monotonic() - start >= seconds:
            return now, False
        assert time.monotonic() - begun < LONGEST_S
        time.sleep(0.003)


def log(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")


def begin(folder: Path) -> Store:
    folder.mkdir()
    (folder / "many.toml").write_text(SUITE)
    return Store(folder / "out")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, int]:
    """Duration of a run without a kill, in seconds, and how many Runs it has."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    store = begin(folder)
    start = time.monotonic()
    victim = Victim(folder, resume=False)
    assert victim.process.wait(LONGEST_S) == 0, log(folder)
    taken = time.monotonic() - start
    victim.require_gone()
    return taken, len(whole(store, store.records()[0]).runs)


@pytest.mark.nightly
def test_killed_at_random_moments(tmp_path: Path, undisturbed: tuple[float, int]) -> None:
    seconds, total = undisturbed
    draw = random.Random(KILLS)
    done = runs = 0
    while done < KILLS:
        runs += 1
        folder = tmp_path / str(runs)
        store = begin(folder)
        known: dict[str, Run] = {}
        while not store.records():
            last = done >= KILLS
            victim = Victim(folder, resume=bool(store.partials()))
            if last:
                victim.process.wait(LONGEST_S)
                ended = True
            else:
                moment = (0, draw.uniform(0, seconds))
                if draw.random() < 0.7:  # the rest of the time is spent on importing
                    first = len(files(store)) + 1
                    moment = (draw.randint(first, max(first, total) + 1), draw.uniform(0, 0.02))
                there, ended = seen_until(victim, store, *moment)
            if ended:
                assert victim.process.returncode == 0, log(folder)
                assert store.records()
            else:
                done += 1
                victim.kill(group=bool(done % 2))
                # The Record takes the place of the files it is made of.
                assert store.records() or there <= files(store)
            victim.require_gone()
            now = finished(store)
            assert known.items() <= now.items()
            known = now
        (id,) = store.records()
        assert {run.id: run for run in whole(store, id).runs} == known
        print(f"{done} kills, {runs} runs brought to their end", flush=True)
