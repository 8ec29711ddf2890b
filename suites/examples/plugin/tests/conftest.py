"""The command as a user runs it, and the environment of all tests here: CUDA is the GPU if there is one, else the
simulator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tritmark.harness.machine import gpu
from tritmark.kernels.cuda.context import SELECT
from tritmark.kernels.native.cpu import FORCE


@pytest.fixture(scope="session", autouse=True)
def _environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(FORCE, raising=False)
        patch.setenv("COLUMNS", "200")
        if gpu.why_not() is not None:
            patch.setenv(SELECT, "simulator")
        yield


@pytest.fixture(scope="session")
def tritmark() -> Callable[..., str]:
    """Runs a command and returns its output."""

    def run(*arguments: str | Path, status: int = 0) -> str:
        command = [sys.executable, "-m", "tritmark.harness", *map(str, arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == status, ended.stdout + ended.stderr
        return ended.stdout if not status else ended.stderr + ended.stdout

    return run
