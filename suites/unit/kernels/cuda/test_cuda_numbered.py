"""One GPU of several, by its number: in the public functions, for arrays of other libraries, and on the command line.
Uses a simulator of two GPUs; neither can access the memory of the other."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_library import MadeUpArray, asarray

from tritmark.harness.errors import (
    DeviceFaultError,
    DeviceUnavailableError,
    InsufficientMemoryError,
    InvalidArgumentError,
    NoCompatibleKernelError,
    UsageError,
)
from tritmark.harness.providers import load
from tritmark.harness.worker import Workers
from tritmark.kernels import (
    QuantizedLinear,
    absmean_quantize,
    activation_quantize,
    float_narrow,
    float_widen,
    i2s_dequantize,
    i2s_quantize,
    matmul,
    matmul_batch,
    pack_codes,
    pack_weights,
    ternary_matmul,
    ternary_matmul_batch,
    ternary_quantize,
    unpack_codes,
)
from tritmark.kernels.cuda import context as contexts
from tritmark.kernels.cuda.context import (
    ALONE,
    CudaContext,
    alone,
    cuda_context,
    current_gpu,
    driver_index,
    gpu_count,
    on_gpu,
)
from tritmark.kernels.cuda.device import DEVICE
from tritmark.kernels.cuda.launch.batch import Batch
from tritmark.kernels.cuda.simulator import SimulatorBackend
from tritmark.kernels.i2s_quantize.cuda import VARIANTS

RNG = np.random.default_rng(9)
X = RNG.normal(size=(6, 128)).astype(np.float32)
CODES = RNG.integers(-1, 2, (16, 128), dtype=np.int8)
WEIGHTS = pack_weights(CODES, 0.5)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two new simulated GPUs."""
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    monkeypatch.setenv("TRITMARK_SIMULATOR_GPUS", "2")
    contexts._CONTEXTS.clear()
    yield monkeypatch
    contexts._CONTEXTS.clear()


def launches(index: int) -> int:
    backend = cuda_context(index).backend
    assert isinstance(backend, SimulatorBackend)
    return backend.launches


def made(array: np.ndarray[Any, Any]) -> Any:
    """An array of the fake library on its current GPU."""
    return asarray(array)


CALLS: dict[str, Callable[[str], Any]] = {
    "i2s_quantize": lambda device: i2s_quantize(X, 0.5, device=device),
    "ternary_quantize": lambda device: ternary_quantize(X, device=device).codes,
    "i2s_dequantize": lambda device: i2s_dequantize(CODES, 0.5, device=device),
    "absmean_quantize": lambda device: absmean_quantize(X, device=device).codes,
    "activation_quantize": lambda device: activation_quantize(X, device=device).q,
    "float_narrow": lambda device: float_narrow(X, device=device),
    "float_widen": lambda device: float_widen(X.astype(np.float16), device=device),
    "pack_codes": lambda device: pack_codes(CODES, 0.5, device=device),
    "unpack_codes": lambda device: unpack_codes(WEIGHTS.packed_as("row16"), (16, 128), device=device)[0],
    "ternary_matmul": lambda device: ternary_matmul(CODES, WEIGHTS, dtype="int32", device=device),
    "matmul_batch": lambda device: matmul_batch([(X, X.T.copy())] * 2, mode="fp32", device=device)[1],
    "ternary_matmul_batch": lambda device: ternary_matmul_batch([(CODES, WEIGHTS)] * 2, device=device)[1],
    "matmul": lambda device: matmul(X, np.ascontiguousarray(X.T), mode="fp16", device=device),
    "QuantizedLinear": lambda device: QuantizedLinear(WEIGHTS, device=device)(X),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_runs_on_the_gpu_that_it_names(two: pytest.MonkeyPatch, name: str) -> None:
    expected = CALLS[name]("cuda")
    before = launches(0)
    assert before > 0
    np.testing.assert_array_equal(CALLS[name]("cuda:1"), expected)
    assert (launches(0), launches(1)) == (before, before)
    np.testing.assert_array_equal(CALLS[name]("cuda:0"), expected)
    assert (launches(0), launches(1)) == (2 * before, before)
    # The second message is about an array from before, as in a test with more of them.
    words = r"is no cuda:2; legal: cuda:0 \(.*\), cuda:1 \(|no GPU 2; .* 0 to 1"
    with pytest.raises((NoCompatibleKernelError, DeviceUnavailableError), match=words):
        CALLS[name]("cuda:2")


@pytest.mark.parametrize("name", ["matmul_batch", "ternary_matmul_batch"])
def test_the_streams_of_a_batch_are_those_of_its_gpu(two: pytest.MonkeyPatch, name: str) -> None:
    ran: list[int] = []
    real = Batch.run

    def run(self: Batch) -> None:
        ran.append(current_gpu())
        real(self)

    two.setattr(Batch, "run", run)
    for device in ("cuda:1", "cuda", "cuda:0"):
        CALLS[name](device)
    assert ran == [1, 0, 0]


def test_arrays_are_computed_where_they_lie(two: pytest.MonkeyPatch) -> None:
    with on_gpu(1):
        x, rows = asarray(X), asarray(X[:2])
    q = i2s_quantize(x, 0.5)  # type: ignore[arg-type]
    assert isinstance(q, MadeUpArray)
    assert q.index == 1
    np.testing.assert_array_equal(q.host(), i2s_quantize(X, 0.5))
    assert launches(0) == 0
    y: Any = QuantizedLinear(WEIGHTS, X[0, :16].copy(), device="cuda:1")(rows)
    assert y.index == 1
    np.testing.assert_array_equal(y.host(), QuantizedLinear(WEIGHTS, X[0, :16].copy())(X[:2]))
    product: Any = matmul(x, x.reshape((128, 6)))
    assert product.index == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda here, there: i2s_quantize(there, 0.5, device="cuda"), "cuda:1; legal: on cuda"),
        (lambda here, there: i2s_quantize(here, 0.5, device="cuda:1"), "cuda; legal: on cuda:1"),
        (
            lambda here, there: i2s_quantize(there, 0.5, out=made(np.zeros(X.shape, np.int8))),
            "q is cuda; legal: on cuda:1",
        ),
        (lambda here, there: QuantizedLinear(WEIGHTS, device="cuda:0")(there), "on cuda:1; legal: on cuda:0"),
        (lambda here, there: matmul(here, there.reshape((128, 6))), "b is on cuda:1; legal: on cuda"),
        (lambda here, there: matmul(X, np.ascontiguousarray(X.T), device="cpu"), "device is 'cpu'; legal: cuda"),
        (lambda here, there: WEIGHTS.packed_as("row16", "cuda:7"), "there is no cuda:7"),
    ],
)
def test_arrays_of_another_gpu_are_refused(two: pytest.MonkeyPatch, call: Callable[..., Any], words: str) -> None:
    with on_gpu(1):
        there = asarray(X)
    with pytest.raises(InvalidArgumentError, match=words):
        call(asarray(X), there)


def test_arrays_of_the_first_gpu_suit_both_of_its_names(two: pytest.MonkeyPatch) -> None:
    x: Any = asarray(X)
    for device in ("cuda", "cuda:0"):
        q: Any = activation_quantize(x, device=device).q
        np.testing.assert_array_equal(q.host(), activation_quantize(X).q)


def test_no_simulated_gpu_touches_the_memory_of_another(two: pytest.MonkeyPatch) -> None:
    variant = next(each for each in VARIANTS if each.name == "v1")
    here, there = cuda_context(0), cuda_context(1)
    x = there.upload(X.reshape(-1))
    launch = variant.bind({"x": x, "scale": np.float32(1)}, {"q": here.array((X.size,), np.int8)}, {"n": X.size}, 1)
    with pytest.raises(DeviceFaultError, match="argument 1 is in the memory of GPU 1, but this is GPU 0"):
        launch.run()
    with pytest.raises(DeviceFaultError, match=r"of GPU 0 at .* is in the memory of GPU 1"):
        here.backend.read(x.pointer, np.empty(4, np.uint8))


def test_each_simulated_gpu_has_its_memory(two: pytest.MonkeyPatch) -> None:
    two.setenv("TRITMARK_SIMULATOR_MEMORY", "100000, 1000")
    i2s_quantize(X, 0.5, device="cuda:0")
    with pytest.raises(InsufficientMemoryError):
        i2s_quantize(X, 0.5, device="cuda:1")


def test_a_planted_failure_comes_at_its_launch_and_stays(two: pytest.MonkeyPatch) -> None:
    two.setenv("TRITMARK_SIMULATOR_FAILS", "1@2")
    i2s_quantize(X, 0.5, device="cuda:1")
    for _ in range(2):
        with pytest.raises(DeviceFaultError, match="GPU 1 was lost at its launch 2, as planted"):
            i2s_quantize(X, 0.5, device="cuda:1")
    i2s_quantize(X, 0.5, device="cuda:0")
    two.setenv("TRITMARK_SIMULATOR_FAILS", "1:2")
    contexts._CONTEXTS.clear()
    with pytest.raises(UsageError, match="legal: GPU@LAUNCH"):
        i2s_quantize(X, 0.5, device="cuda:1")


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, "1"), ("4,7", "7"), ("GPU-aa, GPU-bb", "GPU-bb"), ("MIG-x,MIG-y,MIG-z", "MIG-y")]
)
def test_a_process_for_one_gpu_sees_no_other(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: str
) -> None:
    monkeypatch.delenv("TRITMARK_CUDA", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert alone(1) == {ALONE: "1", "CUDA_VISIBLE_DEVICES": expected}
    monkeypatch.setenv(ALONE, "1")
    assert (driver_index(1), driver_index(0), gpu_count()) == (0, 0, 2)


def told_to_see(site: Any) -> tuple[str | None, int]:
    """In a worker: the only GPU that it sees, and the GPU of its variant's calls."""
    return os.environ.get(ALONE), int(site.device.memory()._index)


def test_each_gpus_worker_sees_that_one_alone(two: pytest.MonkeyPatch) -> None:
    installed = load()
    installed.choose("cuda:*")
    variants = {each.id: each for each in installed.registry.variants}
    with Workers(installed) as workers:
        for index in (0, 1):
            worker = workers.of(variants[f"cuda:{index}/i2s_quantize/none/int8/v1"])
            assert worker.call("telling", told_to_see) == (str(index), index)
        assert workers.of(variants["cuda/i2s_quantize/none/int8/v1"]).call("telling", told_to_see) == (None, 0)


def test_run_judges_each_gpu_and_says_which(two: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from tritmark.harness.cli import app

    options = ["--suite", "smoke", "--op", "i2s_quantize", "--variant", "v1", "--out", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, ["run", "--device", "cuda:*", *options])
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    kernels = {run["kernel"] for run in record["runs"]}
    assert kernels == {f"cuda:{index}/i2s_quantize/none/int8/v1" for index in (0, 1)}
    assert {run["receipt"]["ran"] for run in record["runs"]} == {"v1"}
    ran = [lane["device"] for lane in record["lanes"] if lane.get("ran")]
    assert ran == ["cuda:0", "cuda:1"]
    gone = CliRunner().invoke(app, ["run", "--device", "cuda:2", *options])
    assert isinstance(gone.exception, UsageError)
    assert "--device 'cuda:2' matches nothing" in str(gone.exception)
    assert "legal: cpu, cuda, cuda:0, cuda:1" in str(gone.exception)


def test_one_gpu_alone_has_a_number_too(simulator: CudaContext) -> None:
    np.testing.assert_array_equal(i2s_quantize(X, 0.5, device="cuda:0"), i2s_quantize(X, 0.5))
    with pytest.raises(NoCompatibleKernelError, match=r"no (GPU 1; next: legal: 0 to 0|cuda:1; legal: cuda:0 )"):
        i2s_quantize(X, 0.5, device="cuda:1")
    with pytest.raises(DeviceUnavailableError, match="no GPU 1; next: legal: 0 to 0"):
        cuda_context(1)
    assert DEVICE.numbering is not None
