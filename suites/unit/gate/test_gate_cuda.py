"""Two builds on one GPU, or in one simulator: one context, two sets of modules, interleaved graphs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import gate_requests
import pytest

import tritmark.harness
from tritmark.harness.gate.benchmarks import BenchmarkFilter
from tritmark.harness.gate.build_host import LocalBuildHost
from tritmark.harness.gate.result import Outcome
from tritmark.harness.gate.run import GateRequest, run
from tritmark.kernels.cuda.context import CudaContext

pytestmark = pytest.mark.cuda


def copy(site: Path) -> Path:
    installed = Path(next(iter(tritmark.harness.__path__))).parents[1]
    shutil.copytree(installed / "tritmark", site / "tritmark", ignore=shutil.ignore_patterns("__pycache__"))
    for info in installed.glob("tritmark-*.dist-info"):
        shutil.copytree(info, site / info.name)
    return site


def test_two_builds_compute_the_same_on_one_device(tmp_path: Path, cuda: CudaContext) -> None:
    """Runs in a process of its own: a process that has held two simulators cannot be used again."""
    found = [str(Path(gate_requests.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(found)}
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"simulated {cuda.backend.simulated}\n"


def compare(folder: Path) -> None:
    """Both builds' kernels on the same data."""
    from tritmark.kernels.cuda.context import simulated

    base, head = (LocalBuildHost(copy(folder / name)) for name in ("base", "head"))
    tasks = [
        gate_requests.TASK.model_copy(
            update={"device": "cuda", "op": "i2s_quantize", "dtype": "int8", "variant": variant, "axes": {"n": 5000}}
        )
        for variant in ("v1", "vector")
    ]
    # A process has one simulator, which knows only the memory of the last build: run all of BASE first.
    firsts = [base.bind(task) for task in tasks]
    own = [(first.outputs(), first.again().outputs()) for first in firsts]
    for task, first, (one, twin) in zip(tasks, firsts, own, strict=True):
        second = head.bind(task, first)
        assert type(first._launch) is not type(second._launch)
        assert first.code == second.code != ""
        for other in (twin, second.outputs()):
            assert base.judge(task, first, one, other) == ("", None)
        if not simulated():
            assert base.judge(task, first, first.outputs(), second.outputs()) == ("", None)
    print(f"simulated {simulated()}")


def test_graphs_of_two_builds_take_turns_on_a_gpu(tmp_path: Path) -> None:
    from tritmark.harness.machine import gpu

    why = gpu.why_not()
    if why is not None:
        pytest.skip(why)
    base, head = (copy(tmp_path / name) for name in ("base", "head"))
    source = head / "tritmark/kernels/i2s_quantize/cuda.py"
    text = source.read_text()
    launched = "(kernel,),\n        partial(_vector, kernel, 32 // itemsize(format) * THREADS),"
    assert text.count(launched) == 1
    # The plain kernel under the name of the fast one.
    plain = "(V1 if format == 'none' else kernel,),\n        _v1 if format == 'none' else "
    source.write_text(text.replace(launched, plain + launched.splitlines()[1].strip()))
    wanted = BenchmarkFilter(suite=str(suite(tmp_path)), device="cuda", variant="v*")
    result = run(GateRequest(base=str(base), head=str(head), wanted=wanted, trust_code=False), gate_requests.Silent())
    found = {each.variant: each for each in result.benchmarks if each.format == "none"}
    assert result.together
    fresh = [(each.reason, each.ratio) for each in found["vector"].confirmed]
    assert found["vector"].outcome is Outcome.SLOWER, (found["vector"].reason, fresh)
    assert found["v1"].outcome in {Outcome.SAME, Outcome.AMBIGUOUS}, found["v1"].reason
    assert all(each.clock == "CUDA graph, events" for each in found.values())
    print({name: (each.ratio, each.smallest, each.seconds) for name, each in found.items()})


def suite(folder: Path) -> Path:
    path = folder / "suite.toml"
    path.write_text('title = "one"\n[[workloads]]\nop = "i2s_quantize"\naxes = { n = 1048576 }\nmeasure = true\n')
    return path


if __name__ == "__main__":
    compare(Path(sys.argv[1]))
