"""A Dask cluster of processes on this host, as docs/guides/fleet.md starts it, and `tritmark fleet run` on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

SUITE = """\
title = "for tests"
[[workloads]]
op = "i2s_quantize"
shapes = [{ n = 65 }]
[[workloads]]
op = "i2s_dequantize"
shapes = [{ n = 65 }]
families = ["uniform"]
"""
OPS = ("i2s_quantize", "i2s_dequantize")
_LIMIT_S = 180.0
"""A busy machine needs 20 s for most; a test that waits longer has failed."""


def until(what: Callable[[], Any], reason: str) -> Any:
    """What the call returns once that is true."""
    end = time.monotonic() + _LIMIT_S
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {_LIMIT_S:g} s: {reason}")


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _is_job(process: psutil.Process | None) -> bool:
    return process is not None and "tritmark.harness.fleet.orphan" in process.cmdline()


def jobs_of(pid: int) -> list[psutil.Process]:
    """The processes of jobs below that process, without those that they forked."""
    found = []
    for each in descendants(pid):
        try:
            if _is_job(each) and not _is_job(each.parent()):
                found.append(each)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


@dataclass
class DaskCluster:
    """The scheduler and workers of one test, which end with it."""

    folder: Path
    address: str = ""
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        log = (self.folder / f"log-{len(self.processes)}.txt").open("wb")
        with log:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env={**self.environment(), **(env or {})},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def environment(self) -> dict[str, str]:
        return {**os.environ, "TRITMARK_STATE": str(self.folder / "state")}

    def scheduler(self) -> None:
        file = self.folder / "scheduler.json"
        self.start(
            *("-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-jupyter"),
            *("--scheduler-file", str(file)),
        )
        self.address = json.loads(until(lambda: file.is_file() and file.read_text(), "the scheduler"))["address"]

    def worker(
        self, name: str, *kinds: str, nanny: bool = True, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a worker; with a nanny, the process is the nanny's."""
        resources = ("--resources", " ".join(f"{kind}=1" for kind in kinds)) if kinds else ()
        process = self.start(
            *("-m", "dask", "worker", self.address, "--name", name, "--nthreads", "1", "--no-dashboard"),
            *("--nanny" if nanny else "--no-nanny", *resources),
            env=env,
        )
        log = self.folder / f"log-{len(self.processes) - 1}.txt"
        until(lambda: "Registered to:" in log.read_text(errors="replace"), f"worker {name}")
        return process

    def command(self, *words: str) -> list[str]:
        suite = self.folder / "suite.toml"
        suite.write_text(SUITE, encoding="utf-8")
        return [
            *(sys.executable, "-m", "tritmark", "fleet", "run", "--scheduler", self.address),
            *("--suite", str(suite), "--out", str(self.folder / "results"), *words),
        ]

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """`tritmark fleet run`, which goes on while the test does something to the cluster."""
        process = subprocess.Popen(
            self.command(*words),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def run(self, *words: str) -> tuple[int, str, str]:
        """Status, output and errors of `tritmark fleet run`."""
        return self.end(self.begin(*words))

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        out, errors = process.communicate(timeout=_LIMIT_S)
        return process.returncode, out, errors

    def job(self) -> psutil.Process:
        """The process of a job, once there is one."""
        every = [each for each in self.processes if each.poll() is None]
        found: psutil.Process = until(lambda: next((job for each in every for job in jobs_of(each.pid)), None), "a job")
        return found

    def close(self) -> None:
        for process in reversed(self.processes):
            for each in (*descendants(process.pid), process):
                try:
                    os.kill(each.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


@contextmanager
def dask_cluster(folder: Path) -> Iterator[DaskCluster]:
    made = DaskCluster(folder)
    try:
        yield made
    finally:
        made.close()


_LOCAL = """\
import sys, time
from distributed import LocalCluster
made = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
                    resources={sys.argv[1]: 1})
open(sys.argv[2], "w").write(made.scheduler_address)
time.sleep(3600)
"""


def local_cluster(made: DaskCluster, kind: str) -> None:
    """Two worker processes of Dask's LocalCluster, with their nannies in one process."""
    file = made.folder / "address.txt"
    made.start("-c", _LOCAL, kind, str(file))
    made.address = until(lambda: file.is_file() and file.read_text(), "the cluster with its workers")
