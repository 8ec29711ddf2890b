"""The overhead of a public call is a fraction of its overhead without plans.

test_ops.py measures the times of calls; `tritmark run` the times of kernels and their share of the ceiling; `python
suites/performance/call_costs.py` the overhead of calls, also compared with ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from no_plans import NoPlans

from tritmark.kernels import QuantizedLinear, activation_quantize, pack_weights, ternary_matmul
from tritmark.kernels.ternary_matmul.api import with_receipt

pytestmark = pytest.mark.timing

X = np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32)


SMALL = pack_weights(np.ones((64, 256), np.int8), 1.0)
"""A product of 0.2 us: the rest is the call."""


def seconds(call: Callable[[], Any], count: int = 200) -> float:
    begin = perf_counter()
    for _ in range(count):
        call()
    return perf_counter() - begin


def ratio(one: Callable[[], Any], other: Callable[[], Any]) -> float:
    """The ratio of two times: the median of interleaved samples."""
    one(), other()
    return median(seconds(one) / seconds(other) for _ in range(25))


def products() -> dict[str, Callable[[], Any]]:
    """The same product by the long path, which checks its arguments in Python, and by shorter paths."""
    x = X[:256].reshape(1, 256)
    quantized, out = activation_quantize(x), np.empty((1, 64), np.float32)
    layer, narrow = QuantizedLinear(SMALL, threads=1), x.astype(ml_dtypes.bfloat16)

    def product(call: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: call(quantized.q, SMALL, act_scale=quantized.scale, out=out, threads=1)

    return {
        "long": product(with_receipt),
        "ternary_matmul": product(ternary_matmul),
        "activation_quantize": lambda: activation_quantize(x, threads=1),
        "QuantizedLinear": lambda: layer(x),
        "activation_quantize, bfloat16": lambda: activation_quantize(narrow, threads=1),
        "QuantizedLinear, bfloat16": lambda: layer(narrow),
        "bound": layer.bind(x).run,
    }


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("ternary_matmul", 10),
        ("activation_quantize", 6),
        ("activation_quantize, bfloat16", 4),
        ("QuantizedLinear", 12),
        ("QuantizedLinear, bfloat16", 5),
        ("bound", 50),
    ],
)
def test_a_call_costs_a_fraction_of_the_long_way(name: str, times: float) -> None:
    """Measured on a busy Xeon: 30, 17, 39 and 130 times; with bfloat16 11 and 13 on a Zen 3."""
    calls = products()
    assert ratio(calls["long"], calls[name]) > times


def test_a_product_that_finds_no_plan_would_be_noticed() -> None:
    weights, rows = pack_weights(np.ones((64, 256), np.int8), 1.0), np.ones((1, 256), np.int8)
    object.__setattr__(weights, "plans", NoPlans())
    found = ratio(lambda: with_receipt(rows, weights, threads=1), lambda: ternary_matmul(rows, weights, threads=1))
    assert found < 2
