"""Receipts of public functions, collected by a context: from every function, on every path and device, and for this
thread alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from contract_calls import contract_calls

from tritmark import kernels
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.monitor import hook
from tritmark.harness.monitor.counters import Counters
from tritmark.harness.monitor.receipts import collects, watch_with
from tritmark.harness.spec import Receipt
from tritmark.kernels import (
    QuantizedLinear,
    activation_quantize,
    bind_linears,
    hadamard_quantize,
    i2s_dequantize,
    matmul,
    matmul_batch,
    pack_codes,
    pack_weights,
    receipts,
    spread,
    ternary_linear,
    ternary_matmul,
    ternary_matmul_a16,
    ternary_matmul_batch,
    ternary_matmul_experts,
    ternary_quantize,
    unpack_codes,
)
from tritmark.kernels.activation_quantize.plans import quantize_plans
from tritmark.kernels.cuda.context import CudaContext

RNG = np.random.default_rng(5)
CODES = RNG.integers(-1, 2, (32, 256), dtype=np.int8)
X = RNG.standard_normal((2, 256), dtype=np.float32)
Q = RNG.integers(-2, 2, 512, dtype=np.int8)
ROWS = RNG.integers(-128, 128, (2, 256), dtype=np.int8)
WEIGHTS = pack_weights(CODES, 0.5)
EXPERTS, OFFSETS = pack_weights(np.stack([CODES, CODES]), 0.5), np.array([0, 1, 2], np.int32)
HALF = X.astype(np.float16)
# Kernels of groups hold float16 scales.
GROUPED = pack_weights(CODES, np.full((32, 2), 0.3, np.float32), format="ort_q2")

LAYER, DEQUANTIZED = QuantizedLinear(WEIGHTS), QuantizedLinear(GROUPED)
BOUND = LAYER.bind(X)

Calls = dict[str, tuple[Callable[[], Any], list[str]]]
"""By name: a call of a public function, and the ops of its receipts."""


def of_contracts(device: str) -> Calls:
    return {op: (partial(call, device=device), [op]) for op, call in contract_calls(device).items()}


ON_CPU: Calls = {
    **of_contracts("cpu"),
    "hadamard_quantize": (lambda: hadamard_quantize(X, block_size=64), ["hadamard_quantize"]),
    "ternary_matmul": (lambda: ternary_matmul(ROWS, WEIGHTS), ["ternary_matmul"]),
    "ternary_matmul_batch": (lambda: ternary_matmul_batch([(ROWS, WEIGHTS)] * 3, threads=2), ["ternary_matmul"] * 3),
    "ternary_matmul_experts": (lambda: ternary_matmul_experts(ROWS, EXPERTS, OFFSETS), ["ternary_matmul_experts"]),
    "QuantizedLinear": (lambda: LAYER(X), ["activation_quantize", "ternary_matmul"]),
    "QuantizedLinear, bound": (BOUND.run, ["ternary_matmul"]),
    "QuantizedLinear, dequantized": (lambda: DEQUANTIZED(X), ["ternary_matmul"]),
    "bind_linears": (bind_linears([(LAYER, X)] * 2).run, ["ternary_matmul"] * 2),
}

ON_CUDA: Calls = {
    **of_contracts("cuda"),
    "hadamard_quantize": (
        lambda: hadamard_quantize(X, block_size=64, dtype="float16", device="cuda"),
        ["hadamard_transform"],
    ),
    "matmul": (lambda: matmul(X, X.T.copy(), mode="fp16"), ["matmul_fp16"]),
    "matmul_batch": (lambda: matmul_batch([(X, X.T.copy())] * 2, mode="fp32"), ["matmul_fp32"] * 2),
    "pack_codes": (lambda: pack_codes(CODES, 0.5), ["pack_codes"]),
    "ternary_linear": (lambda: ternary_linear(X, WEIGHTS), ["ternary_linear_fp32"]),
    "ternary_matmul": (lambda: ternary_matmul(ROWS, WEIGHTS, device="cuda"), ["ternary_matmul"]),
    "ternary_matmul_a16": (lambda: ternary_matmul_a16(HALF, WEIGHTS), ["ternary_matmul_fp16"]),
    "ternary_matmul_batch": (
        lambda: ternary_matmul_batch([(ROWS, WEIGHTS)] * 3, device="cuda"),
        ["ternary_matmul"] * 3,
    ),
    "ternary_matmul_experts": (
        lambda: ternary_matmul_experts(ROWS, EXPERTS, OFFSETS, device="cuda"),
        ["ternary_matmul_experts"],
    ),
    "unpack_codes": (lambda: unpack_codes(pack_codes(CODES, 0.5), (32, 256), "row16"), ["pack_codes", "unpack_codes"]),
    "QuantizedLinear": (lambda: QuantizedLinear(WEIGHTS, device="cuda")(X), ["ternary_matmul"]),
}
NO_KERNEL = {
    "PackedWeights": "a container",
    "check_memory_health": "a check",
    "gather_weights": "copies",
    "pack_weights": "packs with NumPy",
    "performance_stats": "counts",
    "receipts": "the context",
    "register": "adds variants",
    "spread": "calls other functions",
    "warm_up": "calls other functions",
}


def ops(found: list[Receipt]) -> list[str]:
    return [each.kernel.split("/")[1] for each in found]


@pytest.fixture(autouse=True)
def _unwatched() -> Iterator[None]:
    assert hook.active is None
    yield
    assert hook.active is None


def test_every_public_function_is_in_the_tables() -> None:
    public = {name for name in kernels.__all__ if name[0].islower() or name in {"PackedWeights", "QuantizedLinear"}}
    assert public == {*ON_CPU, *ON_CUDA, *NO_KERNEL} - {"QuantizedLinear, bound", "QuantizedLinear, dequantized"}


@pytest.mark.parametrize("name", ON_CPU)
def test_functions_on_the_cpu_give_receipts(name: str) -> None:
    call, expected = ON_CPU[name]
    plain = [np.array(each, copy=True) for each in _arrays(call())]
    for _ in range(3):  # a later call would find a plan
        call()
        with receipts() as found:
            inside = call()
        assert ops(found) == expected
        assert all(each.kernel.startswith("cpu/") and each.ran and each.runs for each in found)
        assert all(np.array_equal(mine, other) for mine, other in zip(plain, _arrays(inside), strict=True))
        call()
        assert ops(found) == expected


@pytest.mark.cuda
@pytest.mark.parametrize("name", ON_CUDA)
def test_functions_on_a_gpu_give_receipts(name: str, simulator: CudaContext) -> None:
    call, expected = ON_CUDA[name]
    with receipts() as found:
        call()
    assert ops(found) == expected
    assert all(each.kernel.startswith("cuda/") and each.functions and each.simulated for each in found)


def _arrays(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("name", ["activation_quantize", "ternary_matmul", "QuantizedLinear"])
def test_the_receipt_is_of_the_kernel_that_ran(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, _ = ON_CPU[name]
    call()
    monkeypatch.setenv("TRITMARK_FORCE_ISA", "scalar")
    call()  # now there is a plan
    with receipts() as found:
        call()
    assert {each.ran for each in found} == {"scalar"}
    monkeypatch.delenv("TRITMARK_FORCE_ISA")
    with receipts() as again:
        call()
    assert {each.kernel.rpartition("/")[2] for each in again} == {each.ran for each in again}


def test_a_repacked_product_says_so_in_its_receipt() -> None:
    weights = pack_weights(CODES, 0.5, format="iq1_bn")
    with receipts() as found:
        ternary_matmul(ROWS, weights)
    assert "repacked from iq1_bn" in found[0].note


def test_plans_are_used_again_after_the_context() -> None:
    activation_quantize(X)
    before = len(quantize_plans())
    with receipts():
        activation_quantize(RNG.standard_normal((3, 64), dtype=np.float32))
        assert hook.active is not None
    assert len(quantize_plans()) == before
    activation_quantize(RNG.standard_normal((3, 64), dtype=np.float32))
    assert len(quantize_plans()) == before + 1


def test_contexts_nest_and_end_with_errors() -> None:
    with receipts() as outer:
        i2s_dequantize(Q, 0.5)
        with pytest.raises(InvalidArgumentError), receipts() as inner:
            _a_good_and_a_bad_call()
        i2s_dequantize(Q, 0.5)
    assert ops(inner) == ["activation_quantize"]
    assert ops(outer) == ["i2s_dequantize", "activation_quantize", "i2s_dequantize"]


def _a_good_and_a_bad_call() -> None:
    activation_quantize(X)
    activation_quantize(np.full((1, 64), np.nan, np.float32))


def test_other_threads_give_none_and_keep_their_plans() -> None:
    activation_quantize(X)
    theirs: list[Receipt] = []

    def other() -> None:
        assert not collects()
        activation_quantize(X)
        with receipts() as found:
            i2s_dequantize(Q, 0.5)
        theirs.extend(found)

    with receipts() as mine:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        activation_quantize(X)
    assert (ops(mine), ops(theirs)) == (["activation_quantize"], ["i2s_dequantize"])


def test_a_monitor_counts_the_same_calls() -> None:
    counters = Counters(hook.recorders[0])
    with receipts() as found:
        activation_quantize(X)
        watch_with(counters.watch)
        activation_quantize(X)
        LAYER(X)
        BOUND.run()
        watch_with(None)
        activation_quantize(X)
    assert ops(found) == ["activation_quantize"] * 3 + ["ternary_matmul"] * 2 + ["activation_quantize"]
    counted = {key.entry: each.calls for key, each in counters.snapshot().items()}
    assert counted == {"activation_quantize": 1, "QuantizedLinear": 1, "QuantizedLinear.bind": 1}
    watch_with(counters.watch)
    with receipts():
        activation_quantize(X)
    assert hook.active is counters.watch
    watch_with(None)


def test_a_forked_child_has_the_contexts_of_its_thread_alone() -> None:
    begun, end = threading.Event(), threading.Event()

    def other() -> None:
        with receipts():
            begun.set()
            end.wait()

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:
        os._exit(0 if hook.active is None else 1)
    status = os.waitpid(child, 0)[1]
    end.set()
    thread.join()
    assert status == 0


def test_arrays_of_other_dtypes_are_converted_first() -> None:
    with receipts() as found:
        activation_quantize(X.astype(ml_dtypes.bfloat16))
    assert ops(found) == ["activation_quantize"]


def test_calls_in_the_threads_of_spread_give_receipts_too() -> None:
    layers = {number: np.tile(X, (64, 8)) for number in range(8)}
    with receipts() as found:
        spread(ternary_quantize, layers, devices="cpu", threads=2, block=32)
    assert ops(found) == ["ternary_quantize"] * 8
