"""`threads`, `variant` and dtypes mean the same in every public function, and QuantizedLinear refuses them where it is
made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.kernels import (
    FORMATS,
    PackedWeights,
    QuantizedLinear,
    absmean_quantize,
    activation_quantize,
    i2s_dequantize,
    i2s_quantize,
    pack_weights,
    ternary_linear,
    ternary_matmul,
    ternary_matmul_a16,
    ternary_matmul_batch,
    ternary_matmul_experts,
    ternary_quantize,
)

CODES = np.arange(-1, 2, dtype=np.int8)[np.arange(16 * 64).reshape(16, 64) % 3]
WEIGHTS = CODES.astype(np.float32)
EXPERTS, OFFSETS = pack_weights(np.stack([CODES, CODES]), 0.5), np.array([0, 1, 2], np.int32)
PACKED = pack_weights(CODES, 0.5)
X = np.linspace(-1, 1, 2 * 64, dtype=np.float32).reshape(2, 64)
Q = activation_quantize(X)

THREADED: dict[str, Callable[..., Any]] = {
    "absmean_quantize": lambda **asked: absmean_quantize(WEIGHTS, **asked),
    "activation_quantize": lambda **asked: activation_quantize(X, **asked),
    "i2s_quantize": lambda **asked: i2s_quantize(X, 0.5, **asked),
    "i2s_dequantize": lambda **asked: i2s_dequantize(CODES, 0.5, **asked),
    "ternary_quantize": lambda **asked: ternary_quantize(np.ones(256, np.float32), **asked),
    "ternary_matmul": lambda **asked: ternary_matmul(Q.q, PACKED, **asked),
    "ternary_matmul_experts": lambda **asked: ternary_matmul_experts(Q.q, EXPERTS, OFFSETS, **asked),
    "ternary_matmul_batch": lambda **asked: ternary_matmul_batch([(Q.q, PACKED)] * 2, **asked),
    "QuantizedLinear": lambda **asked: QuantizedLinear(WEIGHTS, **asked),
}
each = pytest.mark.parametrize("call", THREADED.values(), ids=THREADED)


@each
@pytest.mark.parametrize("threads", [0, -1, 1.0, 1.5, True, "2", 2**31, np.float32(2), [1]], ids=repr)
def test_what_is_no_number_of_threads_is_refused(call: Callable[..., Any], threads: Any) -> None:
    call(threads=1)  # what is remembered of an equal number does not count
    with pytest.raises(InvalidArgumentError, match=r"threads is .*; legal: an integer of at least 1, or None"):
        call(threads=threads)


@each
@pytest.mark.parametrize("threads", [1, 2, 1000, np.int64(2), None], ids=repr)
def test_numbers_of_threads(call: Callable[..., Any], threads: Any) -> None:
    call(threads=threads)


@each
@pytest.mark.parametrize("variant", ["", 5, ["scalar"], True], ids=repr)
def test_what_is_no_name_is_refused(call: Callable[..., Any], variant: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"variant is .*; legal: the name of a variant"):
        call(variant=variant)


@each
def test_a_variant_that_does_not_exist_is_refused(call: Callable[..., Any]) -> None:
    with pytest.raises(
        NoCompatibleKernelError, match=r"avx51: unknown variant; did you mean 'avx512'\? legal: .*scalar"
    ):
        call(variant="avx51")
    call(variant="scalar")


@pytest.mark.parametrize("variant", ["", 5])
def test_packed_weights_refuse_what_is_no_name(variant: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="variant is"):
        PackedWeights(PACKED.data, PACKED.format, PACKED.shape, PACKED.scale, variant)


def test_a_layer_refuses_a_variant_that_cannot_take_its_weights() -> None:
    """In place of computing with dequantized weights, which no variant does."""
    scales = np.full(FORMATS["ort_q2"].scale_shape(CODES.shape), 0.1, np.float32)  # float16 does not hold it
    packed = pack_weights(CODES, scales, format="ort_q2")
    assert not QuantizedLinear(packed).native
    with pytest.raises(NoCompatibleKernelError, match="variant 'scalar'"):
        QuantizedLinear(packed, variant="scalar")


@pytest.mark.parametrize("dtype", ["float64", "longdouble", ">f4", "int32", "complex64"])
def test_a_layer_takes_the_dtypes_that_the_functions_take(dtype: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"weights is .*; legal: float32, float16, bfloat16 \(N, K\)"):
        QuantizedLinear(WEIGHTS.astype(dtype))
    with pytest.raises(InvalidArgumentError, match=r"x is of dtype"):
        absmean_quantize(WEIGHTS.astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_narrow_weights_are_those_of_float32(dtype: Any) -> None:
    narrow = (WEIGHTS * np.linspace(0.1, 1, 64, dtype=np.float32)).astype(dtype)
    layer, wide = QuantizedLinear(narrow), QuantizedLinear(narrow.astype(np.float32))
    assert np.array_equal(layer.weights.data, wide.weights.data)
    assert layer.weights.scale == wide.weights.scale


DEVICES: dict[str, Callable[..., Any]] = {
    **THREADED,
    "pack_weights": lambda **asked: pack_weights(CODES, 0.5, **asked),
}


@pytest.mark.parametrize("call", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("device", [["cpu"], 5, None, b"cpu"], ids=repr)
def test_what_is_no_name_of_a_device_is_refused(call: Callable[..., Any], device: Any) -> None:
    with pytest.raises(NoCompatibleKernelError, match="unknown device type; legal: cpu, cuda"):
        call(device=device)


@pytest.mark.parametrize("dtype", [5, [1], object(), {}], ids=["5", "list", "object", "dict"])
def test_what_is_no_dtype_is_refused(dtype: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="dtype is"):
        ternary_matmul(Q.q, PACKED, dtype=dtype)
    with pytest.raises(InvalidArgumentError, match="dtype is"):
        ternary_linear(X, PACKED, dtype=dtype)
    with pytest.raises(InvalidArgumentError, match="dtype is"):
        ternary_matmul_a16(X.astype(np.float16), PACKED, dtype=dtype)


@pytest.mark.parametrize("scale", ["x", object(), 1j, [[1.0], [1.0, 2.0]]], ids=["text", "object", "complex", "ragged"])
def test_what_is_no_scale_is_refused(scale: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="act_scale is"):
        ternary_matmul(Q.q, PACKED, act_scale=scale)


@pytest.mark.parametrize("scale", [0, 0.0, np.float32(0), -1.0, np.nan, np.inf, 1e-50, np.array(0.0)], ids=repr)
def test_a_scale_that_no_product_takes_is_refused_when_weights_are_packed(scale: Any) -> None:
    """Also for all-zero weights: files may have that scale, and formats hold it."""
    for codes in (CODES, np.zeros_like(CODES)):
        with pytest.raises(InvalidArgumentError, match=r"scale is .*; legal: finite and above zero as float32"):
            pack_weights(codes, scale)
    form = FORMATS["tile64"]
    if not np.any(scale) and np.ndim(scale) == 0:
        assert form.unpack(form.pack(np.zeros_like(CODES), scale, tail="error"), CODES.shape) is not None


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.scale_per != "tensor"])
def test_one_number_for_all_groups_is_stored_as_it_is_or_refused(name: str) -> None:
    """It became infinity or 0, and the product, too."""
    form = FORMATS[name]
    shape = form.row_multiple * 32, form.column_multiple * 256
    codes = form.sample(shape, np.random.default_rng(0)) if form.limit else np.ones(shape, np.int8)
    kinds = np.finfo(form.scale_dtype)
    least, most = float(kinds.smallest_subnormal), float(kinds.max)
    for scale in (1e39, -1e39, 2 * most, np.nan, np.inf, least / 4, -least / 4, 1e-60, 10**400, np.float64(1e39)):
        with pytest.raises(
            InvalidArgumentError, match=rf"^pack_weights: scale is .*; legal: finite as {form.scale_dtype}"
        ):
            pack_weights(codes, scale, format=name)
    for stored in (0, 0.0, -0.5, least, most, np.float32(0.5)):
        assert np.all(pack_weights(codes, stored, format=name).scale == np.float32(stored))


def test_an_int_above_every_float_is_no_scale() -> None:
    for scale in (2**2000, -(2**2000), 10**5000):
        with pytest.raises(InvalidArgumentError, match="scale is an int above every float"):
            pack_weights(CODES, scale)


def test_a_layer_names_values_that_are_not_finite_in_its_own_words() -> None:
    """It has no argument `nonfinite`."""
    wrong, legal = X.copy(), "finite values; nan_to_num replaces NaN and infinity"
    wrong[1, 3] = np.nan
    layer = QuantizedLinear(PACKED)
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match=f"^QuantizedLinear: x is nan at index 67; legal: {legal}$"):
            layer(wrong)
        layer(X)
    with pytest.raises(InvalidArgumentError, match=f"^QuantizedLinear: weights is nan at index 67; legal: {legal}$"):
        QuantizedLinear(wrong)
    with pytest.raises(InvalidArgumentError, match='nonfinite="zero"'):
        activation_quantize(wrong)


@pytest.mark.parametrize("format", ["tq2_0", "iq2_bn", "q2_0"])
def test_groups_and_rows_of_zeros_keep_a_scale_of_zero(format: str) -> None:
    codes = np.zeros((8, 256), np.int8)
    codes[1:] = 1
    scales = np.ones(FORMATS[format].scale_shape(codes.shape), np.float32)
    scales[0] = 0
    product = QuantizedLinear(pack_weights(codes, scales, format=format))(np.ones((1, 256), np.float32))
    assert not product[0, 0]
    assert product[0, 1:].all()


@pytest.mark.parametrize("name", [["a"], 5, {}], ids=repr)
def test_other_names_are_text(name: Any) -> None:
    for call in (
        lambda: QuantizedLinear(WEIGHTS, format=name),
        lambda: QuantizedLinear(WEIGHTS, requirement=name),
        lambda: pack_weights(CODES, 0.5, format=name),
        lambda: absmean_quantize(WEIGHTS, nonfinite=name),
    ):
        with pytest.raises(InvalidArgumentError):
            call()


@pytest.mark.parametrize("data", [None, "x", np.ones(3), PACKED.data[:-1], PACKED.data.view(np.int8)])
def test_packed_weights_are_bytes_and_enough_of_them(data: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"data is .*; legal: an array of uint8 of {PACKED.data.nbytes} by"):
        PackedWeights(data, PACKED.format, PACKED.shape, PACKED.scale)
