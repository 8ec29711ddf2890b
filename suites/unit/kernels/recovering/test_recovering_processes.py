"""Programs that fork, or end, while they have a worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import failing_kernels as planted
import pytest

START = """
import os, sys, threading, time, warnings
import numpy as np
import failing_kernels as planted
from tritmark.harness.errors import BadEnvironmentError
from tritmark.harness.recovery import history
from tritmark.kernels import i2s_quantize, register
from tritmark.kernels.recovering import client, last_recoveries

warnings.simplefilter("ignore")
X = np.linspace(-2, 2, 1000, dtype=np.float32)

def right():
    q = i2s_quantize(X, 0.5, on_error="recover")
    return np.array_equal(q, planted.reference(X, 0.5)) and last_recoveries() == ()

assert right()
worker = client._supervisor().of("cpu")
"""
FORK = """
pid = worker.pid
for work in (lambda: True, right):
    child = os.fork()
    if child == 0:
        sys.exit(0 if work() else 5)
    assert os.waitpid(child, 0)[1] == 0
    assert worker.pid == pid
    assert right()
"""
HANG = """
register(planted.failing("hang"))
begun = threading.Event()

def work():
    begun.set()
    i2s_quantize(X, 0.5, variant="hang", on_error="recover")

threading.Thread(target=work, daemon=True).start()
begun.wait()
while not worker.begun.read()[0].endswith("/hang"):
    time.sleep(0.01)
print(worker.pid)
"""


def ran(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "TRITMARK_CACHE": str(folder),
        "PYTHONPATH": os.pathsep.join([str(Path(planted.__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", START + program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.nightly
def test_forked_children_recover_and_leave_the_worker_of_their_parent(tmp_path: Path) -> None:
    assert "Error" not in ran(FORK, tmp_path).stderr


def test_a_program_ends_while_a_kernel_hangs_in_another_thread(tmp_path: Path) -> None:
    done = ran(HANG, tmp_path)  # the time limit of an attempt is twice that of the program
    assert not Path(f"/proc/{done.stdout.strip()}").exists()
    assert not (tmp_path / "errors" / "history.jsonl").exists(), "no kernel is blamed"
