"""What runs in a Dask worker: its facts, and a job, which is a `tritmark run` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from tritmark.harness.errors import BadEnvironmentError
from tritmark.harness.fleet.code import CodeFacts, code_facts
from tritmark.harness.fleet.kinds import MachineKind
from tritmark.harness.locks import locked
from tritmark.harness.record.model import Model

_LAST_LINES = 5
"""Lines of the error stream that name why a job made no Record."""
_MADE = frozenset({0, 1})
"""Exit statuses of `tritmark run` with a Record that was judged: nothing failed, or something did."""

_lock = Lock()
_running: dict[str, subprocess.Popen[bytes]] = {}
"""The process of each set's job here."""
_stopped: set[str] = set()


class JobOrder(Model):
    """A job as it is sent to a worker."""

    set_id: str
    op: str
    kind: str
    machine: str
    """Id of the machine that the kind had when the command began."""
    code: CodeFacts
    arguments: tuple[str, ...]
    """Of `tritmark run`."""
    files: dict[str, str]
    """Text of the files that the arguments name, by name."""


def facts(devices: tuple[str, ...]) -> str:
    """Facts of this process, as JSON: fields of FleetWorker without its name, address and kinds. Takes up to 2 s."""
    import json

    from tritmark.harness.providers import load
    from tritmark.harness.record.facts import machine_facts
    from tritmark.harness.record.versions import environment

    known = load().registry.devices
    compilers = dict.fromkeys(known[name].compiler() for name in devices if name in known)
    here = environment((), 0, compiler="; ".join(filter(None, compilers)))
    code = code_facts().model_copy(update={"compiler": here.compiler})
    return json.dumps(
        {
            "code": code.model_dump(),
            "python": here.python,
            "packages": here.packages,
            "machine": machine_facts().model_dump(mode="json"),
        }
    )


def judged(order: JobOrder) -> tuple[bytes, str]:
    """Run the job. Returns the bytes of its Record's file, and the name of this worker.

    Jobs of this user wait for each other on a machine, also those of other schedulers. Raises BadEnvironmentError if
    this worker has other code or another machine than the order expects, and if there is no Record.
    """
    from distributed import get_worker

    _must_fit(order)
    worker = get_worker()
    # Dask removes what a killed worker left in its own folder.
    with locked(_machine_lock()), TemporaryDirectory(dir=worker.local_directory) as folder:
        here = Path(folder)
        for name, text in order.files.items():
            (here / name).write_text(text, encoding="utf-8")
        with _lock:
            if order.set_id in _stopped:
                raise BadEnvironmentError("stopped before it began", next_step="start the command again")
            process = _started(order, here)
            _running[order.set_id] = process
        try:
            _, errors = process.communicate()
        finally:
            with _lock:
                _running.pop(order.set_id, None)
            if process.poll() is None:
                process.kill()
                process.wait()
        records = sorted((here / "out" / "runs").glob("*.json"))
        if process.returncode not in _MADE or len(records) != 1:
            words = errors.decode("utf-8", "replace").strip().splitlines()[-_LAST_LINES:]
            raise BadEnvironmentError(
                f"`tritmark run` ended with status {process.returncode}: {' / '.join(words) or 'it printed nothing'}",
                next_step="run it on that machine",
            )
        return records[0].read_bytes(), str(worker.name)


def stop(id: str) -> None:
    """End the job of that set here, and refuse its later ones."""
    with _lock:
        _stopped.add(id)
        process = _running.get(id)
    if process is not None:
        # It leads a group, with the processes of its kernels.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _must_fit(order: JobOrder) -> None:
    """A worker may have joined, or been restarted, after the fleet was checked."""
    from tritmark.harness.record.facts import machine_facts

    refused = order.code.refusal(code_facts())
    if not refused and (found := machine_facts().id) != order.machine:
        refused = f"is machine {found}, and {order.kind} is machine {order.machine}"
    if refused:
        raise BadEnvironmentError(f"this worker {refused}", next_step="install the same wheel on every machine")


def _started(order: JobOrder, folder: Path) -> subprocess.Popen[bytes]:
    command = (
        *(sys.executable, "-m", "tritmark.harness.fleet.orphan", str(os.getpid()), "run", *order.arguments),
        *("--op", order.op, "--device", MachineKind.of(order.kind).device, "--out", "out"),
    )
    return subprocess.Popen(
        command,
        cwd=folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C in the worker's terminal is Dask's to handle
    )


def _environment() -> dict[str, str]:
    """Without what Dask's nanny adds, such as OMP_NUM_THREADS=1: kernels run as `tritmark run` runs them."""
    import dask.config

    added: dict[str, Any] = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    return {name: value for name, value in os.environ.items() if name not in added or str(added[name]) != value}


def _machine_lock() -> Path:
    """A file for this host alone, even if the home folder is shared. Linux frees the lock when a worker is killed."""
    import platform

    from tritmark.harness.caches import state_folder

    folder = state_folder("fleet")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{platform.node() or 'host'}.lock"
