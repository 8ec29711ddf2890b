"""The public functions on arrays that are on a GPU: the time of a call until the GPU has finished.

    pytest suites/performance/test_cuda_ops.py --benchmark-only --benchmark-autosave

The arrays are those of made_up_library, so no other package is necessary. test_ops.py has the same for the CPU;
compare.py compares two builds. A call selects its kernel, which the benchmark reports. Without a GPU the benchmarks are
skipped, and each call runs once in the simulator with a small shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from inspect import isfunction, signature
from typing import Any

import numpy as np
import pytest
from contract_calls import contract_calls, ops_on
from earlier_builds import module
from history_shapes import history_shapes
from made_up_library import asarray
from pytest_benchmark.fixture import BenchmarkFixture

from tritmark import kernels
from tritmark.harness.spec import Receipt
from tritmark.kernels import OPS, pack_weights
from tritmark.kernels.cuda import device
from tritmark.kernels.cuda.context import CudaContext, cuda_context, simulated

dispatch = module("tritmark.kernels.dispatch.dispatch", "tritmark.kernels.dispatch")
SHAPES = history_shapes()
NO_GPU = device.missing() or (simulated() and "the simulator has no speed") or None
MATMUL = import_module("tritmark.kernels.matmul.api")
"""By name, because `tritmark.kernels.matmul` is the function."""
Call = Callable[[], Any]
OTHERS = {
    "check_memory_health",
    "matmul_batch",
    "pack_weights",
    "performance_stats",
    "ternary_matmul_batch",
    "warm_up",
}
"""Functions with a device that take no array there."""


@cache
def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


@cache
def codes(N: int, K: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-1, 2, (N, K), dtype=np.int8)


def vector_calls(rows: int, K: int) -> dict[str, Callable[[], Call]]:
    """What makes a call of rows * K values, by its name. The call makes its outputs, as in user code."""
    shape = rows, K

    def of(dtype: str, call: Callable[[Any], Any]) -> Callable[[], Call]:
        def made() -> Call:
            x = asarray(values(*shape).astype(dtype))
            return lambda: call(x)

        return made

    def packed() -> Call:
        q = asarray(codes(*shape))
        return lambda: kernels.pack_codes(q, 0.5)  # type: ignore[arg-type]

    def unpacked() -> Call:
        packed = kernels.pack_codes(asarray(codes(*shape)), 0.5)  # type: ignore[arg-type]
        return lambda: kernels.unpack_codes(packed, shape)

    def rotated() -> Call:
        x, signs = asarray(values(*shape)), asarray(np.ones(K, np.int8))
        return lambda: kernels.hadamard_quantize(x, signs, block_size=512)  # type: ignore[call-overload]

    sizes = {"n": rows * K, "M": rows, "N": rows, "K": K}
    contracts = contract_calls("cuda", sizes, asarray)
    return {
        **{op: partial(partial, call, device="cuda") for op, call in contracts.items()},
        "i2s_quantize-float16": of("float16", lambda x: kernels.i2s_quantize(x, 0.7)),
        "ternary_quantize-packed": of("float32", lambda x: kernels.ternary_quantize(x, 128, packed=True)),
        "activation_quantize-float16": of("float16", kernels.activation_quantize),
        "hadamard_quantize": rotated,
        "pack_codes": packed,
        "unpack_codes": unpacked,
    }


def product_calls(M: int, N: int, K: int) -> dict[str, Callable[[], Call]]:
    """What makes a product of that shape, by its name."""

    def weighed(function: Callable[..., Any], x: Callable[[], np.ndarray], **more: Any) -> Callable[[], Call]:
        def made() -> Call:
            rows, weights = asarray(x()), pack_weights(codes(N, K), 0.5, device="cuda")
            return lambda: function(rows, weights, **more)

        return made

    def experts() -> Call:
        E = 8
        stacked = np.broadcast_to(codes(N, K), (E, N, K)).copy()
        weights = pack_weights(stacked, np.full(E, 0.5, np.float32), device="cuda")
        rows, offsets = asarray(q()), asarray(np.linspace(0, M, E + 1).astype(np.int32))
        return lambda: kernels.ternary_matmul_experts(rows, weights, offsets, act_scale=40.0)  # type: ignore[arg-type]

    def dense(mode: str) -> Callable[[], Call]:
        def made() -> Call:
            a, b = asarray(values(M, K)), asarray(values(K, N))
            return lambda: kernels.matmul(a, b, mode=mode)  # type: ignore[arg-type]

        return made

    def q() -> np.ndarray:
        return np.random.default_rng(1).integers(-128, 128, (M, K), dtype=np.int8)

    return {
        "ternary_matmul": weighed(kernels.ternary_matmul, q, act_scale=40.0),
        "ternary_matmul-int32": weighed(kernels.ternary_matmul, q, dtype="int32"),
        "ternary_matmul_experts": experts,
        "ternary_matmul_a16": weighed(kernels.ternary_matmul_a16, lambda: values(M, K).astype(np.float16)),
        "ternary_linear": weighed(kernels.ternary_linear, lambda: values(M, K)),
        "matmul-fp32": dense("fp32"),
        "matmul-fp16": dense("fp16"),
    }


def axes_of(shape: str) -> tuple[int, ...]:
    return tuple(int(word.partition("=")[2]) for word in shape.split())


VECTORS = {f"on_gpu-{name}": made for name, made in vector_calls(SHAPES.CUDA_SIZES[0] // 2560, 2560).items()}
PRODUCTS = {
    f"on_gpu-{name}-{shape.replace('=', '').replace(' ', '-')}": made
    for shape in SHAPES.LAYERS
    for name, made in product_calls(*axes_of(shape)).items()
}
ALL = VECTORS | PRODUCTS
SMALL = vector_calls(4, 2560) | product_calls(2, 64, 128)


def finished(call: Call) -> Call:
    """The call, followed by a wait for the GPU, so that a call that returned early gained nothing."""
    backend = cuda_context().backend

    def whole() -> Any:
        result = call()
        backend.synchronize()
        return result

    return whole


def ran(call: Call, monkeypatch: pytest.MonkeyPatch) -> Receipt:
    """The receipt of the kernel that a call ran last."""
    seen: list[Receipt] = []
    run, product = dispatch.run, MATMUL.with_receipt

    def watched(*arguments: Any, **more: Any) -> Any:
        done = run(*arguments, **more)
        seen.append(done.receipt())
        return done

    def multiplied(*arguments: Any, **more: Any) -> Any:
        result, receipt = product(*arguments, **more)
        seen.append(receipt)
        return result, receipt

    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "run", watched)
        patch.setattr(MATMUL, "with_receipt", multiplied)
        call()
    return seen[-1]


@pytest.mark.timing
@pytest.mark.skipif(NO_GPU is not None, reason=f"no GPU to time: {NO_GPU}")
@pytest.mark.parametrize("name", ALL)
def test_on_gpu(benchmark: BenchmarkFixture, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = finished(ALL[name]())
    receipt = ran(call, monkeypatch)
    assert receipt.launches
    assert not receipt.simulated
    benchmark.extra_info.update(variant=receipt.kernel, device=cuda_context().backend.info.name)
    benchmark(call)


@pytest.mark.parametrize("name", SMALL)
def test_each_call_runs_on_the_device_and_copies_no_array(
    cuda: CudaContext, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmarks' calls on small shapes."""
    call = finished(SMALL[name]())
    call()  # weights are copied in the first call
    before = cuda.stats.copy()
    receipt = ran(call, monkeypatch)
    moved = cuda.stats.since(before)
    assert receipt.kernel.startswith(f"cuda/{name.partition('-')[0].removesuffix('_a16')}")
    assert receipt.launches
    # The index of a bad element, the scale of a tensor, and the scales of few rows.
    assert max(moved.bytes_uploaded, moved.bytes_downloaded) <= 64


def test_every_function_with_a_device_is_among_them() -> None:
    functions = {name: getattr(kernels, name) for name in kernels.__all__}
    placed = {name for name, each in functions.items() if isfunction(each) and "device" in signature(each).parameters}
    elsewhere = {op.name for op in OPS} - ops_on("cuda")
    assert {name.partition("-")[0] for name in SMALL} == placed - OTHERS - elsewhere
