"""Kernels that need aligned arrays: selected for arrays that are, refused with the reason for others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_library import apart, asarray
from own_registry import registered

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Tier, Variant
from tritmark.kernels import (
    QuantizedLinear,
    activation_quantize,
    i2s_dequantize,
    i2s_quantize,
    pack_weights,
    receipts,
    ternary_matmul,
)
from tritmark.kernels.dispatch import dispatch

DEQUANTIZE = KernelKey("cpu", "i2s_dequantize", "none", "float32")
PRODUCT = KernelKey("cpu", "ternary_matmul", "tile64", "float32")
RNG = np.random.default_rng(8)
WEIGHTS = pack_weights(RNG.integers(-1, 2, (32, 256), dtype=np.int8), 0.5)


def at(values: npt.NDArray[Any], offset: int) -> npt.NDArray[Any]:
    """A copy that begins `offset` bytes past a multiple of 64."""
    raw = np.empty(values.nbytes + 128, np.uint8)
    begin = -raw.ctypes.data % 64 + offset
    made = raw[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def _bind(key: KernelKey, alignment: int, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    """The scalar kernel, which crashes, so to speak, for other arrays than it needs."""
    for array in (*inputs.values(), *outputs.values()):
        assert not isinstance(array, np.ndarray) or not array.ndim or array.ctypes.data % alignment == 0
    scalar = next(each for each in _variants() if each.key == key and each.name == "scalar")
    return scalar.bind(inputs, outputs, axes, threads)


def _variants() -> list[Variant]:
    return dispatch.registry().variants


def wide(alignment: int = 64, key: KernelKey = DEQUANTIZE) -> Variant:
    return Variant(
        key=key,
        name="wide",
        tier=Tier.EXTREMELY_OPTIMIZED,
        rank=99,
        summary="needs aligned arrays",
        bind=partial(_bind, key, alignment),
        alignment=alignment,
    )


@pytest.mark.nightly
@given(st.integers(0, 63), st.integers(0, 15), st.sampled_from([2, 4, 8, 16, 32, 64]))
def test_the_kernel_is_taken_where_every_array_is_aligned(q: int, x: int, alignment: int) -> None:
    values = RNG.integers(-2, 2, 300, dtype=np.int8)
    out = at(np.zeros(300, np.float32), 4 * x)
    with registered(wide(alignment)), receipts() as found:
        i2s_dequantize(at(values, q), 0.5, out=out)
    aligned = q % alignment == 0 and 4 * x % alignment == 0
    assert found[0].kernel.endswith("/wide") == aligned
    assert np.array_equal(out, values * np.float32(0.5))


def test_a_forced_kernel_is_refused_with_the_reason() -> None:
    values, out = at(np.zeros(64, np.int8), 8), at(np.zeros(64, np.float32), 0)
    with registered(wide()):
        message = r"wide: it needs arrays at multiples of 64 bytes, and one is at a multiple of 8 only"
        with pytest.raises(NoCompatibleKernelError, match=message):
            i2s_dequantize(values, 0.5, out=out, variant="wide")
        i2s_dequantize(at(values, 0), 0.5, out=out, variant="wide")


def test_the_reason_is_listed_if_nothing_fits() -> None:
    lonely = replace(DEQUANTIZE, dtype="int32")
    with registered(wide(key=lonely)), pytest.raises(NoCompatibleKernelError, match=r"at a multiple of 1 only"):
        dispatch.select(lonely, {"n": 3}, None, arrays=(at(np.zeros(3, np.int8), 1),))


@pytest.mark.parametrize("offset", [0, 8])
def test_products_and_layers_look_at_their_arrays(offset: int) -> None:
    rows = at(RNG.integers(-99, 99, (2, 256), dtype=np.int8), offset)
    scale, out = at(np.ones(2, np.float32), 0), at(np.zeros((2, 32), np.float32), 0)
    weights = replace(WEIGHTS, data=at(WEIGHTS.data, 0))
    expected = ternary_matmul(rows, WEIGHTS, act_scale=scale)
    with registered(wide(key=PRODUCT)), receipts() as found:
        for _ in range(3):
            ternary_matmul(rows, weights, act_scale=scale, out=out)
    assert {each.kernel.endswith("/wide") for each in found} == {offset == 0}
    assert np.array_equal(out, expected)


def test_a_plan_never_runs_in_place_of_an_aligned_kernel() -> None:
    """A call with other arrays makes no plan that a call with aligned ones finds."""
    key = KernelKey("cpu", "activation_quantize", "none", "int8")
    x = RNG.standard_normal((1, 64), dtype=np.float32)
    expected = activation_quantize(x)
    with registered(wide(key=key)):
        out = type(expected)(*(at(each, 0) for each in expected))
        pairs: list[tuple[Any, Any]] = list(zip(out, expected, strict=True))
        for _ in range(3):
            activation_quantize(at(x, 4), out=out)
            assert all(np.array_equal(a, b) for a, b in pairs)
        with receipts() as found:
            activation_quantize(at(x, 0), out=out)
    assert found[0].kernel.endswith("/wide")


def test_a_bound_layer_looks_at_its_arrays() -> None:
    x = RNG.standard_normal((1, 256), dtype=np.float32)
    key = KernelKey("cpu", "activation_quantize", "none", "int8")
    layer = QuantizedLinear(WEIGHTS)
    expected = layer(x)
    with registered(wide(1024, key)):  # more than any array of this layer has
        assert np.array_equal(layer.bind(at(x, 4)).run(), expected)


@pytest.mark.cuda
def test_an_unaligned_output_on_a_gpu_takes_the_kernel_for_it(simulator: Any) -> None:
    q = RNG.integers(-2, 2, 256, dtype=np.int8)
    for out, name in (
        (asarray(np.zeros(256, np.float32)), "vector"),
        (apart(np.zeros(256, np.float32), "offset"), "v1"),
    ):
        with receipts() as found:
            i2s_dequantize(asarray(q), 0.5, out=out)  # type: ignore[arg-type]
        assert found[0].kernel.endswith(f"/{name}")
        assert np.array_equal(out.host(), i2s_dequantize(q, 0.5))
    with pytest.raises(NoCompatibleKernelError, match=r"vector: it needs arrays at multiples of 16 bytes"):
        i2s_dequantize(asarray(q), 0.5, out=out, variant="vector")  # type: ignore[arg-type]


@pytest.mark.cuda
def test_arrays_that_are_copied_to_a_gpu_are_aligned_there(simulator: Any) -> None:
    with receipts() as found:
        i2s_dequantize(at(np.zeros(64, np.int8), 1), 0.5, device="cuda")
    assert found[0].kernel.endswith("/vector")


def test_values_are_checked_as_before() -> None:
    x, out = np.full(4, np.nan, np.float32), np.zeros(4, np.int8)
    with pytest.raises(InvalidArgumentError, match="nan at index 0"):
        i2s_quantize(x, 0.5, out=out)
    assert np.array_equal(i2s_quantize(x, 0.5, nonfinite="zero"), out)
