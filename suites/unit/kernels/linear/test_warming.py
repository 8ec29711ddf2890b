"""warm_up: what it prepares, the first real call need not prepare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from contract_calls import SIZES, ops_on

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.registry import Registry
from tritmark.kernels import (
    OPS,
    QuantizedLinear,
    absmean_quantize,
    activation_quantize,
    float_narrow,
    i2s_dequantize,
    i2s_quantize,
    matmul,
    pack_codes,
    pack_weights,
    ternary_linear,
    ternary_matmul,
    ternary_matmul_a16,
    ternary_quantize,
    warm_up,
)
from tritmark.kernels.cuda import context as contexts
from tritmark.kernels.cuda.context import cuda_context
from tritmark.kernels.dispatch.dispatch import _select
from tritmark.kernels.weights.packed import _product

N, K = 48, 256
RNG = np.random.default_rng(4)
CODES = RNG.integers(-1, 2, (N, K), dtype=np.int8)
X = RNG.standard_normal((5, K), dtype=np.float32)
ROWS = RNG.integers(-128, 128, (3, K), dtype=np.int8)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A new GPU in the simulator: no kernel is compiled for it, and none was selected."""
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    contexts._CONTEXTS.clear()
    _select.cache_clear()
    _product.cache_clear()
    yield cuda_context()
    contexts._CONTEXTS.clear()


@pytest.fixture
def unselecting(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From its call on, a selection is an error."""

    def forbid() -> None:
        monkeypatch.setattr(Registry, "select_best", lambda *_, **__: pytest.fail("a kernel is selected"))

    return forbid


@pytest.mark.cuda
def test_a_layer_compiles_and_selects_nothing_afterwards(gpu: Any, unselecting: Any) -> None:
    layers = [QuantizedLinear(pack_weights(CODES, 0.5), device="cuda") for _ in range(2)]
    assert gpu.stats.compiled == 0
    found = warm_up(layers, rows=(1, 5))
    assert [each.what for each in found] == [f"QuantizedLinear M={M} N={N} K={K}" for M in (1, 5, 1, 5)]
    assert all(each.kernel.startswith("cuda/ternary_matmul/row16/float32/") and each.seconds > 0 for each in found)
    compiled = gpu.stats.compiled
    assert compiled > 0
    unselecting()
    for layer in layers:
        for rows in (X[:1], X):
            assert layer(rows).shape == (len(rows), N)
    assert gpu.stats.compiled == compiled


@pytest.mark.cuda
def test_without_it_the_first_call_compiles(gpu: Any) -> None:
    QuantizedLinear(pack_weights(CODES, 0.5), device="cuda")(X[:1])
    assert gpu.stats.compiled > 0


@pytest.mark.cuda
def test_ops_compile_and_select_nothing_afterwards(gpu: Any, unselecting: Any) -> None:
    asked = [
        ("ternary_matmul", {"M": 3, "N": N, "K": K}),
        ("activation_quantize", {"M": 3, "K": K}),
        ("i2s_quantize", {"n": 512}),
    ]
    found = warm_up(asked, device="cuda")
    assert [each.kernel.split("/")[:2] for each in found] == [["cuda", op] for op, _ in asked]
    compiled = gpu.stats.compiled
    weights = pack_weights(CODES, 0.5, format=found[0].kernel.split("/")[2])
    unselecting()
    quantized = activation_quantize(X[:3], device="cuda")
    i2s_quantize(np.zeros(512, np.float32), 0.5, device="cuda")
    assert gpu.stats.compiled == compiled
    ternary_matmul(quantized.q, weights, act_scale=quantized.scale, device="cuda")
    assert gpu.stats.compiled == compiled


WEIGHTS = pack_weights(CODES[:16], 0.5, format="row16")
TWO = RNG.standard_normal((2, K), dtype=np.float32)
CALLS: dict[str, Callable[[], Any]] = {
    "absmean_quantize": lambda: absmean_quantize(TWO, device="cuda"),
    "activation_quantize": lambda: activation_quantize(TWO, device="cuda"),
    "float_narrow": lambda: float_narrow(TWO),
    "i2s_dequantize": lambda: i2s_dequantize(CODES[:2], 0.5, device="cuda"),
    "i2s_quantize": lambda: i2s_quantize(TWO, 0.5, device="cuda"),
    "matmul_fp32": lambda: matmul(TWO, np.ones((K, 16), np.float32), mode="fp32"),
    "pack_codes": lambda: pack_codes(CODES[:16], 0.5, "i2_s_x86"),
    "ternary_linear_fp32": lambda: ternary_linear(TWO, WEIGHTS),
    "ternary_matmul": lambda: ternary_matmul(ROWS[:2], WEIGHTS, device="cuda"),
    "ternary_matmul_fp16": lambda: ternary_matmul_a16(TWO.astype(np.float16), WEIGHTS),
    "ternary_quantize": lambda: ternary_quantize(TWO, 32, device="cuda"),
}


@pytest.mark.cuda
@pytest.mark.parametrize("op", CALLS)
def test_a_public_function_compiles_and_selects_nothing_afterwards(op: str, gpu: Any, unselecting: Any) -> None:
    (axes,) = ({axis: SIZES[axis] for axis in each.axes} for each in OPS if each.name == op)
    (found,) = warm_up([(op, axes)], device="cuda")
    assert found.kernel.startswith(f"cuda/{op}/")
    compiled = gpu.stats.compiled
    unselecting()
    CALLS[op]()
    assert gpu.stats.compiled == compiled > 0


@pytest.mark.cuda
@pytest.mark.parametrize("op", sorted(ops_on("cuda") - {*CALLS}))
def test_every_other_op_of_a_gpu_can_be_prepared(op: str, simulator: Any) -> None:
    sizes = {**SIZES, "block": 64}  # every op takes that
    (axes,) = ({axis: sizes.get(axis, 64) for axis in each.axes} for each in OPS if each.name == op)
    (found,) = warm_up([(op, axes)], device="cuda")
    assert found.kernel.startswith(f"cuda/{op}/")


def test_a_layer_on_the_cpu_has_plans_afterwards(unselecting: Any) -> None:
    layer = QuantizedLinear(pack_weights(CODES, 0.5))
    (one, five) = warm_up([layer], rows=(1, 5))
    assert one.kernel == five.kernel == layer.receipt.kernel  # type: ignore[union-attr]
    unselecting()
    for rows in (X[:1], X):
        layer(rows)
        assert layer._plans.last is not None


@pytest.mark.parametrize(
    ("calls", "more", "message"),
    [
        ([("i2s_quantise", {"n": 1})], {}, r"op 'i2s_quantise'.*i2s_quantize"),
        ([("i2s_quantize", {"m": 1})], {}, r"axes of i2s_quantize is {'m': 1}; legal: n: size"),
        ([("i2s_quantize", {"n": 0})], {}, r"legal: n: size"),
        ([("i2s_quantize", 4)], {}, r"legal: layers, and pairs"),
        ([], {"rows": (0,)}, r"rows is \(0,\); legal: integers of 1 or more"),
        ([], {"rows": ()}, r"legal: integers of 1 or more"),
        ([], {"threads": 0}, "threads"),
    ],
)
def test_what_cannot_be_prepared_is_refused(calls: Any, more: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        warm_up(calls, **more)


def test_a_missing_device_or_dtype_is_refused() -> None:
    with pytest.raises(NoCompatibleKernelError, match="unknown device type"):
        warm_up([("i2s_quantize", {"n": 4})], device="gpu")
    with pytest.raises(NoCompatibleKernelError, match="to float64"):
        warm_up([("i2s_quantize", {"n": 4})], dtype="float64")


def test_nothing_runs_before_everything_is_checked() -> None:
    layer = QuantizedLinear(pack_weights(CODES, 0.5))
    with pytest.raises(InvalidArgumentError):
        warm_up([layer, ("i2s_quantize", {})])
    assert layer.receipt is None
