"""The public functions on the GPU (or in the simulator) give the CPU's bits, and report what ran."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InsufficientMemoryError, InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.machine import gpu
from tritmark.kernels import (
    QuantizedLinear,
    absmean_quantize,
    activation_quantize,
    float_narrow,
    float_widen,
    i2s_dequantize,
    i2s_quantize,
    pack_weights,
    ternary_matmul,
    ternary_quantize,
)
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.memory.transfer import Transfers
from tritmark.kernels.numerics.input_dtypes import NARROW
from tritmark.kernels.ternary_matmul.api import with_receipt

RNG = np.random.default_rng(11)
X = RNG.standard_normal((7, 1029)).astype(np.float32)


@pytest.fixture(autouse=True)
def _context(cuda: CudaContext) -> CudaContext:
    return cuda


def test_elementwise_functions_give_the_cpus_bits() -> None:
    assert np.array_equal(i2s_quantize(X, 0.7, device="cuda"), i2s_quantize(X, 0.7))
    q = i2s_quantize(X, 0.7)
    assert np.array_equal(i2s_dequantize(q, 0.7, device="cuda"), i2s_dequantize(q, 0.7))
    for packed in (False, True):
        here, there = ternary_quantize(X, 64, packed=packed), ternary_quantize(X, 64, packed=packed, device="cuda")
        assert np.array_equal(here[0], there[0])
        assert np.array_equal(here[1], there[1])


@pytest.mark.parametrize("dtype", NARROW)
def test_16_bit_values_are_quantized_as_the_same_in_float32(dtype: str) -> None:
    """On the CPU: by their own kernels, and widened for ops without one: packed codes, another block."""
    h = X.astype(named_dtype(dtype))
    wide = h.astype(np.float32)
    quantize: Any = ternary_quantize  # its overloads want to know beforehand whether codes are packed
    for device in ("cpu", "cuda"):
        assert np.array_equal(i2s_quantize(h, 0.7, device=device), i2s_quantize(wide, 0.7))
        for block, packed in ((64, False), (64, True), (100, False)):
            mine = quantize(h, block, packed=packed, device=device)
            theirs = quantize(wide, block, packed=packed)
            assert np.array_equal(mine[0], theirs[0])
            assert np.array_equal(mine[1], theirs[1])
    h[2, 3] = np.nan
    for device in ("cpu", "cuda"):
        with pytest.raises(InvalidArgumentError, match=f"nan at index {2 * 1029 + 3}"):
            i2s_quantize(h, 0.7, device=device)
        filled = i2s_quantize(h, 0.7, nonfinite="zero", device=device)
        assert np.array_equal(filled, i2s_quantize(np.where(np.isnan(h), 0, h).astype(np.float32), 0.7))


def test_weights_and_activations_give_the_cpus_bits() -> None:
    here, there = absmean_quantize(X), absmean_quantize(X, device="cuda")
    assert here.scale == there.scale
    assert np.array_equal(here.codes, there.codes)
    for mine, theirs in zip(activation_quantize(X), activation_quantize(X, device="cuda"), strict=True):
        assert np.array_equal(mine, theirs)  # type: ignore[arg-type]


@pytest.mark.parametrize("M", [1, 3])
@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16"])
def test_products_give_the_cpus_bits(cuda: CudaContext, M: int, dtype: str) -> None:
    activations = RNG.integers(-128, 128, (M, 321), dtype=np.int8)
    weights = pack_weights(RNG.integers(-1, 2, (65, 321), dtype=np.int8), 0.3)
    out, receipt = with_receipt(activations, weights, act_scale=3.0, dtype=dtype, device="cuda")
    assert np.array_equal(out, ternary_matmul(activations, weights, act_scale=3.0, dtype=dtype))
    assert receipt.kernel.startswith(f"cuda/ternary_matmul/row16/{dtype}/")
    assert receipt.uuid == cuda.backend.info.uuid
    assert receipt.launches >= 1
    assert receipt.functions
    assert receipt.simulated == cuda.backend.simulated
    assert (receipt.device_ns > 0) != cuda.backend.simulated


@pytest.mark.parametrize("M", [1, 2, 8, 20])
def test_scales_of_all_magnitudes_give_the_cpus_bits(M: int) -> None:
    """Subnormal ones too: a GPU divides them without __ddiv_rn."""
    ends = [2.0**-149, 2.0**-126, 1.0, float(np.finfo(np.float32).max)]
    activations, codes = RNG.integers(-128, 128, (M, 321), dtype=np.int8), RNG.integers(-1, 2, (65, 321), dtype=np.int8)
    for weight_scale in ends:
        weights = pack_weights(codes, weight_scale)
        drawn = np.exp2(RNG.uniform(-149, 128, M)).astype(np.float32)
        for act_scale in (drawn, *(np.full(M, end, np.float32) for end in ends)):
            with np.errstate(over="ignore"):
                out = ternary_matmul(activations, weights, act_scale=act_scale, device="cuda")
                assert np.array_equal(out, ternary_matmul(activations, weights, act_scale=act_scale))


def test_a_layer_keeps_its_weights_on_the_device(cuda: CudaContext) -> None:
    W = RNG.standard_normal((96, 130)).astype(np.float32)
    here, there = QuantizedLinear(W), QuantizedLinear(W, device="cuda")
    x = RNG.standard_normal((2, 3, 130)).astype(np.float32)
    assert np.array_equal(here(x), there(x))
    assert there.receipt is not None
    assert there.receipt.launches >= 2
    assert there.receipt.uuid == cuda.backend.info.uuid
    sent = cuda.stats.bytes_uploaded
    there(x)
    assert cuda.stats.bytes_uploaded - sent < 2 * x.nbytes, "the weights were copied again"


def test_what_no_kernel_of_the_device_takes_is_not_claimed_for_it() -> None:
    weights = pack_weights(np.full((4, 256), 2, np.int8), np.ones((4, 4), np.float32), format="q2_0")
    layer = QuantizedLinear(weights, device="cuda")
    layer(np.ones((1, 256), np.float32))
    assert layer.receipt is not None
    assert layer.receipt.kernel.startswith("cpu/")
    assert not layer.receipt.native
    assert "on the CPU" in layer.receipt.note


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_and_nothing_is_written(value: float) -> None:
    bad = X.copy()
    bad[3, 5] = value
    out = np.full(X.shape, 9, np.int8)
    with pytest.raises(InvalidArgumentError, match=r"x is .* at index 3092"):
        i2s_quantize(bad, 0.7, out=out, device="cuda")
    assert (out == 9).all()
    with pytest.raises(InvalidArgumentError, match=r"x is .* at index 3092"):
        activation_quantize(bad, device="cuda")
    assert np.array_equal(
        i2s_quantize(bad, 0.7, nonfinite="zero", device="cuda"), i2s_quantize(bad, 0.7, nonfinite="zero")
    )


def test_large_arrays_go_through_in_chunks(cuda: CudaContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritmark.kernels.cuda.memory.transfer.PIPELINED", 4096)
    monkeypatch.setattr(cuda, "transfers", Transfers(cuda.backend, cuda.pool, chunk=4096))
    asked = cuda.stats.launches
    q = i2s_quantize(X, 0.7, device="cuda")
    assert cuda.stats.launches - asked > 5
    assert np.array_equal(q, i2s_quantize(X, 0.7))
    assert np.array_equal(i2s_dequantize(q, 0.7, device="cuda"), i2s_dequantize(q, 0.7))
    assert np.array_equal(float_widen(float_narrow(X)), X.astype(np.float16).astype(np.float32))
    bad = X.copy()
    bad[6, 1000] = np.inf
    out = np.full(X.shape, 9, np.int8)
    with pytest.raises(InvalidArgumentError, match=r"x is inf at index 7174"):
        i2s_quantize(bad, 0.7, out=out, device="cuda")
    assert (out == 9).all()
    with pytest.raises(InvalidArgumentError, match=r"x is inf at index 7174"):
        i2s_quantize(bad, 0.7, device="cuda")
    assert absmean_quantize(X, device="cuda").scale == absmean_quantize(X).scale


def test_too_much_is_refused_before_anything_is_allocated(cuda: CudaContext, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda.pool.release()  # kept memory could serve the call
    monkeypatch.setattr(cuda.backend, "memory", lambda: (1000, 1 << 30))
    with pytest.raises(InsufficientMemoryError) as caught:
        i2s_quantize(np.ones(1 << 20, np.float32), 1.0, device="cuda")
    assert caught.value.available <= 1000 < 5 << 20 <= caught.value.required


def test_a_device_that_is_not_there_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_CUDA", "driver")
    monkeypatch.setenv("TRITMARK_GPU_FAKE", "none")
    why = gpu.why_not()
    assert why
    for call in (
        lambda: i2s_quantize(X, 1.0, device="cuda"),
        lambda: QuantizedLinear(np.ones((4, 8), np.float32), device="cuda"),
    ):
        with pytest.raises(NoCompatibleKernelError) as caught:
            call()
        assert why in str(caught.value)
    with pytest.raises(NoCompatibleKernelError, match="unknown device"):
        i2s_quantize(X, 1.0, device="tpu")
