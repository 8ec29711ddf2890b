"""PyTorch's threads, which spin after its calls, run tritmark's work meanwhile, in any order of imports."""

from __future__ import annotations

import os
import subprocess
from sys import executable

import pytest

from tritmark.harness.machine import cpu as machine
from tritmark.kernels.native import threads

pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(machine.usable_cores() < 2, reason="with one core nothing is shared"),
]

BEHIND = """
from time import monotonic
import numpy as np
from tritmark.kernels import activation_quantize, pack_weights, ternary_matmul
{meet}
from tritmark.kernels.native.cpu import native

rng, pool = np.random.default_rng(0), native("pool")
weights = pack_weights(rng.integers(-1, 2, (2560, 2560), dtype=np.int8), 0.5)
q = rng.integers(-128, 128, (16, 2560), dtype=np.int8)
expected = ternary_matmul(q, weights, dtype="int32", threads=1)
torch.set_num_threads(2)
ones = torch.ones((256, 2560), dtype=torch.int8)
by_torch, until = 0, monotonic() + 30
while by_torch < 2 and monotonic() < until:
    pool.watch(True)
    for _ in range(20):
        torch._int_mm(ones, ones.t())
        assert np.array_equal(ternary_matmul(q, weights, dtype="int32", threads=2), expected)
    pool.watch(False)
    by_torch = pool.seen()["team"]
print(by_torch > 1)  # a thread's first call asks in any case
"""
LOADED = "from tritmark.kernels.native.cpu import native; native('pool'); import torch; "
MEET = {
    "it was imported before the first product": "import torch",
    "tritmark.torch is imported": f"{LOADED}import tritmark.torch",
    "a tensor is an argument": f"{LOADED}activation_quantize(torch.ones((2, 64)))",
}


def ran(meet: str) -> str:
    command = [executable, "-W", "error", "-c", BEHIND.format(meet=meet)]
    # If OpenMP binds its threads, it binds the one that imports PyTorch first.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("meet", MEET)
def test_pytorch_s_threads_do_calls_behind_its_own(meet: str) -> None:
    assert ran(MEET[meet]) == "True"


@pytest.mark.parametrize("names", [("GOMP_parallel", "no_such_function"), ("no_such_function",) * 3])
def test_a_pytorch_without_such_threads_is_left_alone(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_TEAM", names)
    threads.join_pytorch(None)  # type: ignore[arg-type]  # a pool would be told
