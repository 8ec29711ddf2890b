"""QuantizedLinear against a computation in float64 of the same quantized values."""

from __future__ import annotations

import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.kernels import QuantizedLinear, absmean_quantize, activation_quantize
from tritmark.kernels.numerics.input_dtypes import NARROW, narrow

RNG = np.random.default_rng(11)
WEIGHTS = RNG.standard_normal((70, 130), dtype=np.float32)
BIAS = RNG.standard_normal(70, dtype=np.float32)


def _expected(x: np.ndarray, codes: np.ndarray, scale: np.float32) -> np.ndarray:
    q = activation_quantize(x)
    acc = q.q.astype(np.int64) @ codes.astype(np.int64).T
    return (acc * (np.float64(scale) / q.scale.astype(np.float64)[..., np.newaxis])).astype(np.float32)


@pytest.mark.parametrize("leading", [(), (1,), (5,), (2, 3)])
@pytest.mark.parametrize("format", ["tile64", "i2_s_x86_r4"])
def test_forward_of_float_weights(leading, format):
    weights, bias = (WEIGHTS[:64, :128], BIAS[:64]) if format != "tile64" else (WEIGHTS, BIAS)
    layer = QuantizedLinear(weights, bias, format=format)
    x = RNG.standard_normal((*leading, weights.shape[1]), dtype=np.float32)
    codes, scale = absmean_quantize(np.ascontiguousarray(weights))
    assert np.array_equal(layer(x), _expected(x, codes, scale) + bias)
    assert layer.receipt.native  # type: ignore[union-attr]
    assert layer.receipt.kernel.startswith("cpu/ternary_matmul/tile64/float32/")  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("format", ["tile64", "hf_pack"])
def test_activations_of_16_bits_are_their_values_in_float32(dtype, format):
    """hf_pack is repacked; before and after a call with float32 rows, for which a plan is then kept."""
    layer = QuantizedLinear(WEIGHTS[:64, :128], BIAS[:64], format=format)
    x = narrow(RNG.standard_normal((3, 128), dtype=np.float32), dtype)
    for _ in range(2):
        y = layer(x)
        assert y.dtype == np.float32
        assert np.array_equal(y, layer(x.astype(np.float32)))


def test_the_variant_is_forced():
    layer = QuantizedLinear(WEIGHTS, variant="scalar", threads=1)
    layer(np.ones(130, np.float32))
    assert layer.receipt.ran == "scalar"  # type: ignore[union-attr]


@pytest.mark.parametrize("device", ["metal:0", "metal", ""])
def test_a_device_without_kernels_is_refused_at_construction(device):
    with pytest.raises(NoCompatibleKernelError, match="unknown device"):
        QuantizedLinear(WEIGHTS, device=device)


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"weights": WEIGHTS, "format": "i9"}, "format"),
        ({"weights": WEIGHTS[0]}, "weights"),
        ({"weights": WEIGHTS.astype(np.int8)}, "weights"),
        ({"weights": np.full((2, 2), np.nan, np.float32)}, "weights"),
        ({"weights": WEIGHTS, "bias": BIAS[:-1]}, "bias"),
    ],
)
def test_bad_construction_is_named(arguments, argument):
    with pytest.raises(InvalidArgumentError) as caught:
        QuantizedLinear(**arguments)
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    "x",
    [np.ones(129, np.float32), np.ones(130), np.ones((1, 1, 1, 130), np.float32), np.ones((0, 130), np.float32), [1.0]],
)
def test_bad_input_is_named(x):
    with pytest.raises(InvalidArgumentError):
        QuantizedLinear(WEIGHTS)(x)
