"""The same on a GPU: the simulator, in processes of their own that lose their context, and launches that raise what the
driver reports."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import failing_kernels as planted
import numpy as np
import pytest
from own_registry import registered

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.recovery import (
    FailureKind,
    Recovery,
    RecoveryWarning,
    Strategy,
    UnrecoveredError,
    engine,
    history,
)
from tritmark.harness.recovery.supervisor import SECONDS
from tritmark.kernels import (
    QuantizedLinear,
    float_widen,
    i2s_quantize,
    matmul,
    matmul_batch,
    pack_weights,
    spread,
    ternary_matmul,
    ternary_quantize,
)
from tritmark.kernels.cuda import context as contexts
from tritmark.kernels.recovering import client, last_recoveries

pytestmark = pytest.mark.cuda

X = np.random.default_rng(54).standard_normal(1000, np.float32)
RIGHT = i2s_quantize(X, 0.5)
GPU = "cuda/i2s_quantize/none/int8"


@pytest.fixture(scope="module", autouse=True)
def kernels() -> Iterator[None]:
    kinds = (*planted.GPU_FAULTS, "few_elements", "context_once")
    with registered(*(planted.failing(kind, planted.ON_GPU) for kind in kinds)):
        yield


@pytest.fixture(autouse=True)
def simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("CAPABILITY", "MEMORY", "FAILS", "GPUS"):
        monkeypatch.delenv(f"TRITMARK_SIMULATOR_{name}", raising=False)
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    monkeypatch.setattr(history, "path", lambda: tmp_path / "history.jsonl")
    monkeypatch.setenv("RECOVERY_TEST_PID", str(tmp_path / "processes"))
    engine.forget_warnings()
    contexts._CONTEXTS.clear()
    yield
    contexts._CONTEXTS.clear()
    client.close_workers()


def recovered(**options: Any) -> Recovery:
    x = options.pop("x", X)
    with pytest.warns(RecoveryWarning):
        q = i2s_quantize(x, 0.5, on_error="recover", **{"device": "cuda", **options})
    np.testing.assert_array_equal(q, i2s_quantize(x, 0.5))
    (found,) = last_recoveries()
    return found


def steps(recovery: Recovery) -> list[Strategy]:
    return [each.strategy for each in recovery.tried]


@pytest.mark.parametrize(
    ("kernel", "kind", "code", "strategy"),
    [
        ("illegal_address", FailureKind.DEVICE_FAULT, "CUDA_ERROR_ILLEGAL_ADDRESS", Strategy.CONTEXT_ANEW),
        ("trap", FailureKind.DEVICE_FAULT, "CUDA_ERROR_LAUNCH_FAILED", Strategy.CONTEXT_ANEW),
        ("sigsegv", FailureKind.SEGMENTATION_FAULT, "SIGSEGV", Strategy.CONTEXT_ANEW),
        ("timeout", FailureKind.HANG, "CUDA_ERROR_LAUNCH_TIMEOUT", Strategy.DEVICE_RESET),
        ("compile", FailureKind.NOT_LOADED, "CompileError", Strategy.OTHER_KERNEL),
    ],
)
def test_another_kernel_of_the_gpu_takes_its_place(
    kernel: str, kind: FailureKind, code: str, strategy: Strategy
) -> None:
    recovery = recovered(variant=kernel)
    assert (recovery.diagnosis.kind, recovery.diagnosis.code) == (kind, code)
    assert (recovery.strategy, recovery.failed, recovery.kernel) == (strategy, f"{GPU}/{kernel}", f"{GPU}/vector")


@pytest.mark.parametrize("kernel", ["ecc", "unavailable", "memory"])
def test_the_cpu_takes_its_place_if_the_device_keeps_failing(kernel: str) -> None:
    recovery = recovered(variant=kernel)
    assert recovery.strategy is Strategy.CPU
    assert recovery.kernel.startswith("cpu/")
    expected = {
        "ecc": [Strategy.DEVICE_RESET],
        "unavailable": [Strategy.CONTEXT_ANEW, Strategy.DEVICE_RESET],
        "memory": [Strategy.FREED_MEMORY, Strategy.REDUCED_LAUNCH],
    }[kernel]
    assert steps(recovery) == [*expected, Strategy.CPU]


@pytest.mark.timing
def test_a_hang_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    recovered(variant="trap")  # its kernels are compiled by now
    monkeypatch.setenv(SECONDS, "3")
    recovery = recovered(variant="hang")
    assert (recovery.diagnosis.kind, recovery.strategy) == (FailureKind.HANG, Strategy.DEVICE_RESET)


def test_a_smaller_launch() -> None:
    recovery = recovered(variant="few_elements")
    assert recovery.diagnosis.kind is FailureKind.LAUNCH_REFUSED
    assert (recovery.strategy, recovery.kernel) == (Strategy.REDUCED_LAUNCH, recovery.failed)


def test_another_kernel_after_a_launch_that_no_piece_makes_legal() -> None:
    assert steps(recovered(variant="launch")) == [Strategy.REDUCED_LAUNCH, Strategy.OTHER_KERNEL]


def test_pieces_for_a_gpu_with_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_SIMULATOR_MEMORY", "20000")
    x = np.random.default_rng(1).standard_normal(8001, np.float32)
    recovery = recovered(x=x)
    assert recovery.diagnosis.kind is FailureKind.OUT_OF_MEMORY
    assert steps(recovery) == [Strategy.FREED_MEMORY, Strategy.REDUCED_LAUNCH]
    assert recovery.kernel.startswith("cuda/")


@pytest.mark.nightly
def test_pieces_of_blocks_keep_their_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_SIMULATOR_MEMORY", "20000")
    x = np.random.default_rng(2).standard_normal(5000, np.float32)
    with pytest.warns(RecoveryWarning):
        found = ternary_quantize(x, 128, device="cuda", on_error="recover")
    assert last_recoveries()[0].strategy is Strategy.REDUCED_LAUNCH
    for one, other in zip(found, ternary_quantize(x, 128), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_index_in_a_piece_is_that_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_SIMULATOR_MEMORY", "20000")
    x = np.zeros(8001, np.float32)
    x[7000] = np.inf
    with pytest.raises(InvalidArgumentError, match="inf at index 7000"):
        i2s_quantize(x, 0.5, device="cuda", on_error="recover")


def test_a_context_made_anew_leaves_the_other_names_of_the_gpu_alone() -> None:
    i2s_quantize(X, 0.5, device="cuda:0", on_error="recover")
    supervisor = client._supervisor()
    other = supervisor.of("cuda:0").pid
    recovery = recovered(variant="context_once")
    assert (recovery.strategy, recovery.kernel) == (Strategy.CONTEXT_ANEW, recovery.failed)
    assert supervisor.of("cuda:0").pid == other is not None


def test_a_device_reset_ends_all_processes_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVERY_TEST_PROCESSES", "2")
    i2s_quantize(X, 0.5, device="cuda:0", on_error="recover")
    supervisor = client._supervisor()
    assert supervisor.of("cuda:0").pid is not None
    recovery = recovered(variant="context_once")
    assert steps(recovery) == [Strategy.CONTEXT_ANEW, Strategy.DEVICE_RESET]
    assert (recovery.strategy, recovery.kernel) == (Strategy.DEVICE_RESET, recovery.failed)
    assert supervisor.of("cuda:0").pid is None


def test_a_gpu_that_is_lost_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_SIMULATOR_FAILS", "0@1")
    recovery = recovered()
    assert recovery.diagnosis.kind is FailureKind.DEVICE_FAULT
    assert steps(recovery) == [Strategy.CONTEXT_ANEW, Strategy.CPU]
    assert recovery.tried[0].failure is not None


def test_a_lost_context_does_not_outlive_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_SIMULATOR_FAILS", "0@2")
    outcomes = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            np.testing.assert_array_equal(i2s_quantize(X, 0.5, device="cuda", on_error="recover"), RIGHT)
            outcomes.append(len(last_recoveries()))
    assert outcomes == [0, 1, 1, 1], "each process has one launch; the second kernel of the GPU takes it"


def test_an_op_without_a_kernel_on_the_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_SIMULATOR_FAILS", "0@1")
    with pytest.raises(UnrecoveredError, match="CPU") as caught:
        float_widen(X.astype(np.float16), device="cuda", on_error="recover")
    assert caught.value.recovery.tried[-1].impossible
    with pytest.raises(UnrecoveredError):
        matmul(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32), mode="fp32", on_error="recover")
    assert all(each.strategy is not Strategy.CPU for each in history_steps())


def pairs_of(*rows: int) -> list[Any]:
    rng = np.random.default_rng(8)
    return [(rng.standard_normal((M, 8), np.float32), rng.standard_normal((8, 5), np.float32)) for M in rows]


@pytest.fixture
def batch() -> list[Any]:
    return pairs_of(3, planted.ODD_ROWS, 4, planted.ODD_ROWS, 5)


@pytest.mark.filterwarnings("ignore::tritmark.harness.recovery.RecoveryWarning")
def test_a_batch_recovers_and_names_the_products_that_failed(batch: list[Any]) -> None:
    wanted = matmul_batch(batch, mode="fp32")
    with registered(planted.failing_product("illegal_address")):
        found = matmul_batch(batch, mode="fp32", on_error="recover")
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    recoveries = last_recoveries()
    assert [each.index for each in recoveries] == [1, 3]
    assert {each.failed.rpartition("/")[2] for each in recoveries} == {"illegal_address"}
    assert "failed for product 3 (" in str(recoveries[1])
    assert [each.index for each in history.read().failures] == [1, 3]
    assert matmul_batch(batch[:1], mode="fp32", on_error="recover")[0].shape == (3, 5)
    assert last_recoveries() == ()


def test_a_batch_ends_at_a_product_that_nothing_helps(batch: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MOST", 1)  # no second attempt
    with registered(planted.failing_product("illegal_address")), pytest.raises(UnrecoveredError, match="product 1"):
        matmul_batch(batch, mode="fp32", on_error="recover")
    assert [(each.index, each.refused) for each in last_recoveries()] == [(1, True)]


def test_a_product_that_does_not_fit_is_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = pairs_of(16, 6001, 1)
    wanted = matmul_batch(pairs, mode="fp32")
    monkeypatch.setenv("TRITMARK_SIMULATOR_MEMORY", "200000")  # 312 kB are needed
    with pytest.warns(RecoveryWarning):
        found = matmul_batch(pairs, mode="fp32", on_error="recover")
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    (recovery,) = last_recoveries()
    assert (recovery.index, recovery.diagnosis.kind) == (1, FailureKind.OUT_OF_MEMORY)
    assert steps(recovery) == [Strategy.FREED_MEMORY, Strategy.REDUCED_LAUNCH]
    wide = np.ones((1, 40_000), np.float32), np.ones((40_000, 5), np.float32)
    with pytest.raises(UnrecoveredError) as caught:
        matmul(*wide, mode="fp32", on_error="recover")
    assert caught.value.recovery.tried[-1].impossible == "the product has one row"


def test_a_batch_is_checked_before_its_first_product(batch: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_SIMULATOR_FAILS", "0@1")
    with pytest.raises(InvalidArgumentError, match="K = 8"):
        matmul_batch([*batch, (np.ones((2, 8), np.float32), np.ones((7, 2), np.float32))], on_error="recover")
    with pytest.raises(InvalidArgumentError, match="on_error"):
        matmul_batch(batch, on_error="ignore")
    assert matmul_batch([], on_error="recover") == []
    assert history.read().failures == ()


def history_steps() -> list[Any]:
    return [each for each in history.read().failures if each.strategy is not Strategy.NONE]


def test_a_layer_goes_on_after_its_gpu_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    w, x = rng.standard_normal((64, 256), np.float32), rng.standard_normal((1, 256), np.float32)
    expected = QuantizedLinear(w)(x)
    monkeypatch.setenv("TRITMARK_SIMULATOR_FAILS", "0@2")
    layer = QuantizedLinear(w, device="cuda", on_error="recover")
    with pytest.warns(RecoveryWarning):
        np.testing.assert_array_equal(layer(x), expected)
    (recovery,) = last_recoveries()
    assert recovery.op == "ternary_matmul"
    assert layer.receipt is not None
    assert layer.receipt.kernel == recovery.kernel != recovery.failed
    assert str(recovery) in layer.receipt.note


def test_weights_that_name_a_kernel_of_the_gpu_are_multiplied_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, x = np.ones((64, 256), np.int8), np.ones((1, 256), np.int8)
    weights = pack_weights(codes, 1.0, format="row16", variant="gemv", device="cuda")
    monkeypatch.setenv("TRITMARK_SIMULATOR_FAILS", "0@1")
    with pytest.warns(RecoveryWarning):
        assert (ternary_matmul(x, weights, device="cuda", on_error="recover") == 256).all()
    assert last_recoveries()[0].strategy is Strategy.CPU


def test_tensors_that_are_spread_recover_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_SIMULATOR_FAILS", "0@3")
    tensors = [(np.full(100 + number, number, np.float32), 0.5) for number in range(6)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = spread(i2s_quantize, tensors, on_error="recover")
    assert found.failed == ()
    for number, (x, scale) in enumerate(tensors):
        np.testing.assert_array_equal(found.results[number], i2s_quantize(x, scale))


def test_a_default_that_depends_on_the_device_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_SIMULATOR_FAILS", "0@1")
    with pytest.raises(UnrecoveredError) as caught:
        ternary_quantize(X, None, device="cuda", on_error="recover")
    assert Strategy.CPU not in steps(caught.value.recovery)


def test_arrays_on_a_device_are_refused() -> None:
    from tritmark.harness.resident import ResidentArray

    class Resident(ResidentArray):
        device = "cuda"

    Resident.__abstractmethods__ = frozenset()
    with pytest.raises(InvalidArgumentError, match="in a device's memory"):
        i2s_quantize(Resident(), 0.5, device="cuda", on_error="recover")  # type: ignore[abstract, arg-type]


def test_a_missing_gpu_is_the_callers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoCompatibleKernelError, match="there is no cuda:7"):
        i2s_quantize(X, 0.5, device="cuda:7", on_error="recover")
