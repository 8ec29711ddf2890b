"""The public counts of work on a GPU, and the check of its memory, on the simulator or the GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest

from tritmark.harness.errors import DeviceUnavailableError, InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.spec.stats import COUNTS
from tritmark.kernels import check_memory_health, i2s_quantize, performance_stats
from tritmark.kernels.cuda.context import CudaContext, simulated
from tritmark.kernels.cuda.memory.stats import PerformanceStats
from tritmark.kernels.dispatch.offload import kept

X = np.linspace(-2, 2, 5000, dtype=np.float32)


def test_every_count_is_public() -> None:
    assert set(COUNTS) == {each.name for each in fields(PerformanceStats)}


@pytest.mark.cuda
def test_a_call_is_counted(cuda: CudaContext) -> None:
    before = performance_stats("cuda:0")
    q = i2s_quantize(X, 0.5, device="cuda")
    found = performance_stats().since(before)
    assert (found.device, found.simulated) == ("cuda:0", simulated())
    assert found.launches >= 1
    assert found.bytes_uploaded >= X.nbytes
    assert found.bytes_downloaded >= q.nbytes
    assert found.uploads >= 1
    assert found.downloads >= 1
    assert found.cache_hits + found.cache_misses >= 2
    assert performance_stats().compiled + performance_stats().loaded >= 1
    assert found.pool == cuda.pool.figures()
    assert (performance_stats().since(performance_stats()).launches, found.since(found).hit_rate) == (0, None)


@pytest.mark.cuda
def test_work_that_is_kept_shows_in_the_pool(cuda: CudaContext) -> None:
    before = check_memory_health()
    assert (before.device, before.simulated, before.healthy) == ("cuda:0", simulated(), True)
    array = cuda.pool.array((1000,), np.float32, "leaked here")
    found = check_memory_health(older_than_s=0.0)
    assert found.figures.live == before.figures.live + 1
    assert not found.healthy
    assert found.total >= found.free
    del array
    assert check_memory_health().figures.live == before.figures.live
    with kept():
        i2s_quantize(X, 0.5, device="cuda")
        assert performance_stats().pool.live > before.figures.live


def test_the_host_has_no_pool() -> None:
    for ask in (performance_stats, check_memory_health):
        with pytest.raises(InvalidArgumentError, match="legal: cuda, or cuda:0 and so on"):
            ask("cpu")
        with pytest.raises(NoCompatibleKernelError, match=r"cuda"):
            ask("cudda")
        with pytest.raises(NoCompatibleKernelError):
            ask(0)  # type: ignore[arg-type]


def test_a_gpu_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_CUDA", "driver")
    monkeypatch.setenv("TRITMARK_GPU_FAKE", "none")
    for ask in (performance_stats, check_memory_health):
        with pytest.raises(DeviceUnavailableError, match="next: "):
            ask()
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    with pytest.raises((NoCompatibleKernelError, DeviceUnavailableError), match="no cuda:99; legal: cuda:0"):
        performance_stats("cuda:99")


def test_asking_for_counts_does_not_start_the_device() -> None:
    code = (
        "import json; from dataclasses import asdict; from tritmark.kernels import performance_stats;"
        "from tritmark.kernels.cuda import context; found = performance_stats();"
        "print(json.dumps([asdict(found), len(context._CONTEXTS)]))"
    )
    environment = os.environ | {"TRITMARK_CUDA": "simulator"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    found, contexts = json.loads(done.stdout)
    assert contexts == 0
    assert (found.pop("device"), found.pop("simulated")) == ("cuda:0", True)
    assert not any(found.pop("pool").values())
    assert set(found) == set(COUNTS)
    assert not any(found.values())
