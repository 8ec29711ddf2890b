"""A run of the benchmarks is kept, the next one is compared with it, and fails if a call became slower."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timing

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CASE = "test_vector_op[i2s_quantize-none-int8-scalar-n65536]"
SHORT = ("--benchmark-max-time=0.05", "--benchmark-min-rounds=9")
SLOWER = """
from tritmark import kernels

right = kernels.i2s_quantize


def slow(*arguments, **more):
    for _ in range(40):
        right(*arguments, **more)
    return right(*arguments, **more)


kernels.i2s_quantize = slow
"""


def benchmarked(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """One case in a separate pytest, with the modules of `folder` importable and the runs kept there."""
    storage = f"--benchmark-storage=file://{folder / 'kept'}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{HERE / 'test_ops.py'}::{CASE}"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [*command, storage, *SHORT, *options], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_a_slower_call_fails_the_comparison(tmp_path: Path) -> None:
    first = benchmarked(tmp_path, "--benchmark-autosave")
    assert first.returncode == 0, first.stdout + first.stderr
    (kept,) = (tmp_path / "kept").rglob("*.json")
    (told,) = json.loads(kept.read_text())["benchmarks"]
    assert told["extra_info"]["variant"] == "scalar"
    assert told["extra_info"]["bytes"] == 5 * 65536

    # 41 calls in place of one: a change that noise neither causes nor hides.
    compare = ("--benchmark-compare", "--benchmark-compare-fail=median:900%")
    again = benchmarked(tmp_path, *compare)
    assert again.returncode == 0, again.stdout + again.stderr
    (tmp_path / "planted_slower.py").write_text(SLOWER)
    slower = benchmarked(tmp_path, *compare, "-p", "planted_slower")
    assert slower.returncode != 0
    assert "Performance has regressed" in slower.stdout + slower.stderr


def test_runs_are_kept_where_git_ignores_them(pytestconfig: pytest.Config) -> None:
    chosen = pytestconfig.getoption("benchmark_storage")
    if chosen != f"file://{ROOT / 'results' / 'benchmarks'}":
        pytest.skip(f"this run keeps its own in {chosen}")
    probe = "results/benchmarks/Linux/0001.json"
    assert not subprocess.run(["git", "check-ignore", "-q", probe], cwd=ROOT, check=False).returncode
