"""An array arrives in the worker as it was: values, strides and alignment; and a value is refused only where the
contract excludes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tritmark.harness.spec import Op
from tritmark.kernels import activation_quantize, i2s_dequantize, pack_weights, ternary_matmul, ternary_quantize
from tritmark.kernels.activation_quantize.spec import OP as ACTIVATION_QUANTIZE
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.i2s_dequantize.spec import OP as DEQUANTIZE
from tritmark.kernels.recovering.finite import excluded_value
from tritmark.kernels.recovering.message import StridedArray, sent
from tritmark.kernels.ternary_matmul.spec import OP as TERNARY_MATMUL
from tritmark.kernels.ternary_quantize.spec import OP as TERNARY_QUANTIZE

NONE = st.sampled_from([slice(None), slice(None, None, -1), slice(None, None, 2), slice(1, None, 3)])


@settings(max_examples=150, deadline=None)
@given(
    arrays.arrays(st.sampled_from(["f4", "i1", "f2", "i4"]), arrays.array_shapes(max_dims=3, max_side=9)),
    st.tuples(NONE, NONE, NONE),
    st.booleans(),
)
def test_strides_and_values_arrive(array: Any, cuts: Any, turned: bool) -> None:
    given_array = array[cuts[: array.ndim]]
    given_array = given_array.T if turned else given_array
    found = sent(given_array)
    if not isinstance(found, StridedArray):
        assert found is given_array
        return
    made = found.made()
    np.testing.assert_array_equal(made, given_array)
    assert (made.strides, made.dtype, made.shape) == (given_array.strides, given_array.dtype, given_array.shape)
    assert made.flags.c_contiguous == given_array.flags.c_contiguous
    assert made.ctypes.data % 64 == given_array.ctypes.data % 64


def test_an_unaligned_array_arrives_unaligned() -> None:
    x = np.zeros(401, np.uint8)[1:].view(np.float32)
    assert not x.flags.aligned
    found = sent(x)
    assert isinstance(found, StridedArray)
    assert not found.made().flags.aligned


def test_a_repeated_row_arrives_as_one() -> None:
    x = np.broadcast_to(np.arange(4, dtype=np.float32), (3, 4))
    made = sent(x).made()
    assert made.strides == x.strides
    np.testing.assert_array_equal(made, x)


SCALES = st.floats(2.0**-100, 2.0**127, width=32)
EXTREMES = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(arrays.arrays("f4", (3, 40), elements=EXTREMES), SCALES)
def test_no_result_of_a_correct_kernel_is_refused(x: Any, scale: float) -> None:
    axes = {"M": 3, "K": 40}
    quantized = activation_quantize(x)
    assert not excluded_value(ACTIVATION_QUANTIZE, {"x": x}, quantized._asdict(), axes)
    assert not excluded_value(
        TERNARY_QUANTIZE, {"x": x.reshape(-1)}, ternary_quantize(x)._asdict(), {"n": 120, "block": 128}
    )
    codes = np.array([-2, 1, 0], np.int8)
    with np.errstate(over="ignore"):
        made = i2s_dequantize(codes, scale)
    assert not excluded_value(DEQUANTIZE, {"q": codes, "scale": np.float32(scale)}, {"x": made}, {"n": 3})


@settings(max_examples=40, deadline=None)
@given(SCALES, SCALES, st.sampled_from(["float32", "bfloat16"]))
def test_no_product_of_a_correct_kernel_is_refused(scale: float, factor: float, dtype: str) -> None:
    weights = pack_weights(np.ones((64, 256), np.int8), scale)
    q = np.full((1, 256), 127, np.int8)
    with np.errstate(over="ignore"):
        out = ternary_matmul(q, weights, act_scale=factor, dtype=dtype)
    inputs = {
        "activations": q,
        "weight_scale": weights.weight_scale,
        "act_scale": np.array([factor], np.float32),
        "weights": weights.data,
    }
    assert not excluded_value(TERNARY_MATMUL, inputs, {"out": out}, {"M": 1, "N": 64, "K": 256})


PRODUCT = {
    "activations": np.ones((1, 64), np.int8),
    "weight_scale": np.float32(0.5),
    "act_scale": np.ones(1, np.float32),
}


@pytest.mark.parametrize(
    ("op", "inputs", "output", "value"),
    [
        (ACTIVATION_QUANTIZE, {"x": np.ones((2, 4), np.float32)}, "scale", np.inf),
        (ACTIVATION_QUANTIZE, {"x": np.full((2, 4), 3e38, np.float32)}, "scale", np.nan),
        (TERNARY_QUANTIZE, {"x": np.ones(8, np.float32)}, "scales", -np.inf),
        (DEQUANTIZE, {"q": np.ones(2, np.int8), "scale": np.float32(2)}, "x", np.inf),
        (DEQUANTIZE, {"q": np.ones(2, np.int8), "scale": np.float32(3e38)}, "x", np.nan),
        (TERNARY_MATMUL, PRODUCT, "out", np.inf),
        (TERNARY_MATMUL, {**PRODUCT, "weight_scale": np.float32(1)}, "out", np.nan),
    ],
)
def test_an_excluded_value_is_found(op: Op, inputs: Any, output: str, value: float) -> None:
    found = np.array([1, value], np.float32)
    axes = {"M": 1, "N": 2, "K": 64, "n": 2, "block": 128}
    assert excluded_value(op, inputs, {output: found}, axes) == f"{value} in {output} at (1,), from finite inputs"
    assert not excluded_value(op, inputs, {output: np.ones(2, np.float32)}, axes)


def test_registered_kernels_see_no_observer_in_the_program() -> None:
    assert not dispatch.observed()
