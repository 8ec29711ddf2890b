"""The public calls as a user makes them, Python included; `pytest suites/performance --benchmark-only` shows the table.

What a kernel itself takes, and its share of the machine's ceiling, is measured by `tritmark run`.
"""

from __future__ import annotations

import numpy as np
import pytest

from tritmark.kernels import (
    QuantizedLinear,
    activation_quantize,
    i2s_dequantize,
    i2s_quantize,
    pack_weights,
    ternary_matmul,
    ternary_quantize,
)

pytestmark = pytest.mark.timing

X = np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32)


def test_i2s_quantize(benchmark, isa):
    q = benchmark(lambda: i2s_quantize(X, 0.7, variant=isa))
    assert q.shape == X.shape


def test_i2s_dequantize(benchmark, isa):
    q = i2s_quantize(X, 0.7)
    x = benchmark(lambda: i2s_dequantize(q, 0.7, variant=isa))
    assert x.shape == q.shape


@pytest.mark.parametrize("packed", [False, True])
def test_ternary_quantize(benchmark, isa, packed):
    result = benchmark(lambda: ternary_quantize(X, 128, packed=packed, variant=isa))
    assert result.scales.shape == (X.size // 128,)


def test_activation_quantize(benchmark, isa):
    result = benchmark(lambda: activation_quantize(X[:2560], variant=isa))
    assert result.q.shape == (2560,)


@pytest.mark.parametrize("M", [1, 32])
def test_ternary_matmul(benchmark, isa, M):
    rng = np.random.default_rng(0)
    weights = pack_weights(rng.integers(-1, 2, (2560, 2560), dtype=np.int8), 1.0)
    activations = rng.integers(-128, 128, (M, 2560), dtype=np.int8)
    y = benchmark(lambda: ternary_matmul(activations, weights, act_scale=40.0, variant=isa))
    assert y.shape == (M, 2560)


def test_linear(benchmark):
    layer = QuantizedLinear(X.reshape(1024, 1024))
    y = benchmark(lambda: layer(X[:1024]))
    assert y.shape == (1024,)
