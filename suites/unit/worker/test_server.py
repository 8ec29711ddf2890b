"""The server that workers are forked from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import Distribution, PathDistribution
from multiprocessing import forkserver
from multiprocessing.connection import Connection

from tritmark.harness.providers import GROUP, VARIANTS, entry_points, load
from tritmark.harness.worker.process import CONTEXT, await_ended_server, importing, prepare


def send_modules(end: Connection) -> None:
    """Of a new process, in which nothing has been imported but this file."""
    end.send(set(sys.modules))


def test_workers_import_no_kernels() -> None:
    """Each would take several times as long to start."""
    prepare()
    mine, its = CONTEXT.Pipe()
    process = CONTEXT.Process(target=send_modules, args=(its,))
    with importing():
        process.start()
    found = mine.recv()
    process.join()
    names = {each.name: each.module for group in (GROUP, VARIANTS) for each in entry_points(group=group)}
    assert names["builtin"] == "tritmark.kernels"
    assert {*names.values(), "tritmark.kernels.provider.builtin"} <= found


def load_without_reading(end: Connection, path: list[str]) -> None:
    def refuse(self: Distribution, name: str) -> str:
        raise AssertionError(f"{name} is read")

    sys.path[:] = path
    PathDistribution.read_text = refuse  # type: ignore[assignment]
    end.send(len(load().registry.variants))


def test_workers_read_no_metadata() -> None:
    """It takes 40 ms for a hundred packages. A new server, since a folder that changed is read again; and its sys.path,
    to which other tests and packages add folders of their own."""
    shown = subprocess.run(
        [sys.executable, "-P", "-c", "import json, sys; print(json.dumps(sys.path))"],
        stdout=subprocess.PIPE,
        check=True,
    )
    prepare()
    os.kill(vars(forkserver._forkserver)["_forkserver_pid"], signal.SIGKILL)
    await_ended_server()
    prepare()
    mine, its = CONTEXT.Pipe()
    process = CONTEXT.Process(target=load_without_reading, args=(its, json.loads(shown.stdout)))
    with importing():
        process.start()
    its.close()
    assert mine.recv() == len(load().registry.variants)
    process.join()
