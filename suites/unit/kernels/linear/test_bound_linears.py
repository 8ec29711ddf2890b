"""bind_linears: several layers in one native call, with the bits and the errors of separate ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.kernels import QuantizedLinear, bind_linears, pack_weights, receipts
from tritmark.kernels.linear.bound_linears import BoundLinears

RNG = np.random.default_rng(11)
K = 320


def layer(N: int, K: int = K, *, bias: Any = None, **more: Any) -> QuantizedLinear:
    return QuantizedLinear(
        pack_weights(RNG.integers(-1, 2, (N, K), dtype=np.int8), float(RNG.uniform(0.1, 2))), bias, **more
    )


def rows(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def grouped(N: int) -> QuantizedLinear:
    scales = RNG.uniform(0.1, 1, (N, K // 64)).astype(np.float16).astype(np.float32)
    return QuantizedLinear(pack_weights(RNG.integers(-1, 2, (N, K), dtype=np.int8), scales, format="q2_0"))


@pytest.mark.parametrize("shape", [(K,), (1, K), (5, K), (2, 3, K)])
def test_q_k_and_v(shape: tuple[int, ...]) -> None:
    layers, x = [layer(200), layer(70, bias=rows(70)), grouped(64)], rows(*shape)
    made = bind_linears((each, x) for each in layers)
    assert repr(made) == "BoundLinears(3 calls, 1 quantizations)"
    assert made.launch is not None
    for _ in range(3):
        x[...] = rows(*shape)
        outs = made.run()
        assert outs is made.outs
        assert all(np.array_equal(out, each(x)) for out, each in zip(outs, layers, strict=True))


def test_a_chain_with_its_outputs() -> None:
    first, second, third = layer(192), layer(64, 192), layer(50, 192)
    x, inner, out = rows(3, K), np.empty((3, 192), np.float32), np.empty((3, 64), np.float32)
    made = bind_linears([(first, x, inner), (second, inner, out), (third, inner)])
    assert made.outs[:2] == (inner, out)
    assert "2 quantizations" in repr(made)
    for _ in range(2):
        x[...] = rows(3, K)
        found = made()
        expected = first(x)
        assert np.array_equal(found[0], expected)
        assert np.array_equal(found[1], second(expected))
        assert np.array_equal(found[2], third(expected))


def test_other_rows_of_the_same_shape_between_them() -> None:
    """All of them share the memory of quantized rows."""
    a, b, c = layer(64), layer(64), layer(64)
    x, y = rows(2, K), rows(2, K)
    made = bind_linears([(a, x), (b, y), (c, x)])
    assert "3 quantizations" in repr(made)
    for each, given, out in zip((a, b, c), (x, y, x), made.run(), strict=True):
        assert np.array_equal(out, each(given))


def test_layers_with_other_threads_quantize_alone() -> None:
    x = rows(2, K)
    layers = [layer(64, threads=1), layer(64, threads=2)]
    made = bind_linears([(each, x) for each in layers])
    assert "2 quantizations" in repr(made)
    assert all(np.array_equal(out, each(x)) for out, each in zip(made.run(), layers, strict=True))


def test_a_bias_that_native_code_does_not_take() -> None:
    bias = rows(2 * 64)[::2]
    layers, x = [layer(64, bias=bias), layer(64)], rows(2, K)
    made = bind_linears([(each, x) for each in layers])
    assert made.launch is None
    for _ in range(2):
        assert all(np.array_equal(out, each(x)) for out, each in zip(made.run(), layers, strict=True))


def test_a_value_that_is_not_finite() -> None:
    layers, x, y = [layer(64), layer(32), layer(16)], rows(2, K), rows(2, K)
    made = bind_linears([(layers[0], x), (layers[1], y), (layers[2], y)])
    for out in made.outs:
        out.fill(7)
    y[1, 3] = np.nan
    with pytest.raises(InvalidArgumentError, match=r"x is nan at index .*3.*finite values") as refused:
        made.run()
    assert refused.value.__notes__ == ["in call 1 of bind_linears"]
    assert np.array_equal(made.outs[0], layers[0](x))
    assert all((out == 7).all() for out in made.outs[1:])
    y[1, 3] = 0
    assert all(np.array_equal(out, each(g)) for out, each, g in zip(made.run(), layers, (x, y, y), strict=True))


def test_receipts() -> None:
    layers, x = [layer(64), layer(32)], rows(2, K)
    made = bind_linears([(each, x) for each in layers])
    made.run()
    made.run()
    found = made.receipts
    assert [each.runs for each in found] == [2, 2]
    assert all("ternary_matmul" in each.kernel and each.ran for each in found)
    with receipts() as seen:
        made.run()
    assert [each.kernel for each in seen] == [each.kernel for each in found]


def test_the_clock_takes_the_whole_call() -> None:
    from tritmark.kernels.native import cpu

    layers, x = [layer(64), layer(32)], rows(2, K)
    made = bind_linears([(each, x) for each in layers])
    clock: Any = cpu.DEVICE.clock()  # type: ignore[misc]
    clock.sample([made.launch], 0, 5)
    assert made.launch.runs == 5
    assert np.array_equal(made.outs[1], layers[1](x))


BUFFER = np.zeros((2, K), np.float32)
BAD: dict[str, tuple[Callable[[QuantizedLinear], Any], str]] = {
    "none": (lambda one: [], "none; legal: pairs"),
    "no layer": (lambda one: [(one.weights, rows(1, K))], "as call 0; legal: pairs"),
    "no pair": (lambda one: [(one,)], "as call 0; legal: pairs"),
    "a list": (lambda one: [[one, rows(1, K)]], "as call 0; legal: pairs"),
    "another width": (lambda one: [(one, rows(1, K)), (one, rows(1, K + 1))], "the last 320"),
    "float64": (lambda one: [(one, np.ones((1, K)))], "float64 of shape"),
    "an output in its rows": (lambda one: [(one, BUFFER[:1], BUFFER.reshape(-1)[:64].reshape(1, 64))], "out"),
}


@pytest.mark.parametrize("case", BAD)
def test_other_calls_are_refused(case: str) -> None:
    given, found = BAD[case]
    with pytest.raises(InvalidArgumentError, match=found):
        bind_linears(given(layer(64)))


def test_the_number_of_a_refused_call_is_named() -> None:
    one = layer(64)
    with pytest.raises(InvalidArgumentError) as refused:
        bind_linears([(one, rows(1, K)), (one, rows(1, K + 1))])
    assert refused.value.__notes__ == ["in call 1 of bind_linears"]


def test_a_layer_that_recovers_is_refused() -> None:
    with pytest.raises(NoCompatibleKernelError, match="cannot recover"):
        bind_linears([(layer(64, on_error="recover"), rows(1, K))])


def test_it_is_made_of_bound_calls() -> None:
    assert isinstance(bind_linears([(layer(64), rows(1, K))]), BoundLinears)
