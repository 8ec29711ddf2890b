"""Arrays of another library on the device: the public functions return the same bits as for NumPy arrays, as arrays of
that library, and copy no array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from made_up_library import NAMESPACE, MadeUpArray, apart, asarray

from tritmark.harness.errors import DeviceUnavailableError, InvalidArgumentError
from tritmark.kernels import (
    QuantizedLinear,
    absmean_quantize,
    activation_quantize,
    float_narrow,
    float_widen,
    i2s_dequantize,
    i2s_quantize,
    matmul,
    pack_codes,
    pack_weights,
    ternary_matmul,
    ternary_quantize,
    unpack_codes,
)
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.sharing.foreign_array import ForeignArray
from tritmark.kernels.cuda.sharing.peer import GpuArray

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 128)).astype(np.float32)
CODES = RNG.integers(-1, 2, (16, 128), dtype=np.int8)
Q = RNG.integers(-128, 128, (6, 128), dtype=np.int8)
SCALES = RNG.uniform(1, 2, 6).astype(np.float32)
WEIGHTS = pack_weights(CODES, 0.5)
HADAMARD = 64, RNG.choice(np.array([-1, 1], np.int8), 128)
rotations = pytest.mark.parametrize("hadamard", [None, HADAMARD], ids=["plain", "rotated"])

CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "absmean_quantize": (absmean_quantize, (X,), {}),
    "activation_quantize": (activation_quantize, (X,), {}),
    "activation_quantize in three axes": (activation_quantize, (X.reshape(2, 3, 128),), {}),
    "float_narrow": (float_narrow, (X,), {}),
    "float_widen": (float_widen, (X.astype(np.float16),), {}),
    "i2s_dequantize": (i2s_dequantize, (CODES, 0.5), {}),
    "i2s_quantize": (i2s_quantize, (X, 0.5), {}),
    "i2s_quantize of float16": (i2s_quantize, (X.astype(np.float16), 0.5), {}),
    "matmul": (matmul, (X, np.ascontiguousarray(X.T)), {"mode": "fp32"}),
    "matmul in float16": (matmul, (X, np.ascontiguousarray(X.T)), {"mode": "fp16"}),
    "pack_codes": (pack_codes, (CODES, 0.5), {}),
    "unpack_codes": (unpack_codes, (pack_codes.__wrapped__, (16, 128)), {}),  # type: ignore[attr-defined]
    "ternary_matmul": (ternary_matmul, (Q, WEIGHTS), {"act_scale": SCALES}),
    "ternary_matmul of a vector": (ternary_matmul, (Q[0], WEIGHTS), {"act_scale": 2.0, "dtype": "int32"}),
    "ternary_quantize": (ternary_quantize, (X, 64), {}),
    "ternary_quantize, packed": (ternary_quantize, (X, 128), {"packed": True}),
    "ternary_quantize of float16": (ternary_quantize, (X.astype(np.float16), 64), {}),
    "ternary_quantize of float16, packed": (ternary_quantize, (X.astype(np.float16), 128), {"packed": True}),
    "QuantizedLinear": (
        lambda x, **device: QuantizedLinear(WEIGHTS, X[0, :16].copy(), device="cuda")(x),
        (X.reshape(2, 3, 128),),
        {},
    ),
    "QuantizedLinear with hadamard": (
        lambda x, **device: QuantizedLinear(WEIGHTS, X[0, :16].copy(), hadamard=HADAMARD, device="cuda")(x),
        (X.reshape(2, 3, 128),),
        {},
    ),
}
PLACED = {"matmul", "matmul in float16"}
"""Calls without a `device`."""


def there(value: Any) -> Any:
    return asarray(value) if isinstance(value, np.ndarray) else value


def host(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(host, value))
    assert not isinstance(value, np.ndarray)
    return value.host() if isinstance(value, MadeUpArray) else value


@pytest.mark.parametrize("name", CALLS)
def test_results_are_the_librarys_and_the_same(simulator: CudaContext, name: str) -> None:
    function, arguments, options = CALLS[name]
    if name == "unpack_codes":
        arguments = pack_codes(CODES, 0.5), *arguments[1:]
    expected = function(*arguments, **options, **({} if name in PLACED else {"device": "cuda"}))
    given = [there(value) for value in arguments]
    named = {key: there(value) for key, value in options.items()}
    before = simulator.stats.copy()
    found = function(*given, **named)
    moved = simulator.stats.since(before)
    # The index of a bad element, 8 bytes per launch, and a scale; the fake library adds a bias on the host.
    assert max(moved.bytes_uploaded, moved.bytes_downloaded) <= 32 or name.startswith("QuantizedLinear")
    made = host(found)
    pairs = zip(made, expected, strict=True) if isinstance(made, tuple) else [(made, expected)]
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
        assert np.shape(one) == np.shape(other)


@pytest.mark.parametrize("way", ["offset", "strided"])
@pytest.mark.parametrize("name", CALLS)
def test_inputs_that_are_strided_or_offset_are_copied(simulator: CudaContext, name: str, way: str) -> None:
    function, arguments, options = CALLS[name]
    if name == "unpack_codes":
        arguments = pack_codes(CODES, 0.5), *arguments[1:]
    expected = function(*arguments, **options, **({} if name in PLACED else {"device": "cuda"}))

    def moved(value: Any) -> Any:
        return apart(value, way) if isinstance(value, np.ndarray) else there(value)

    made = host(function(*map(moved, arguments), **{key: moved(value) for key, value in options.items()}))
    pairs = zip(made, expected, strict=True) if isinstance(made, tuple) else [(made, expected)]
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_out_is_filled_and_given_back(simulator: CudaContext) -> None:
    out = there(np.zeros((6, 128), np.int8))
    assert i2s_quantize(there(X), 0.5, out=out) is out
    np.testing.assert_array_equal(host(out), i2s_quantize(X, 0.5))
    product = there(np.zeros((6, 16), np.float32))
    assert ternary_matmul(there(Q), WEIGHTS, out=product) is product
    np.testing.assert_array_equal(host(product), ternary_matmul(Q, WEIGHTS))


def _with_nan() -> np.ndarray[Any, Any]:
    x = X.copy()
    x[1, 3] = np.nan
    return x


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: i2s_quantize(there(_with_nan()), 0.5), "x is nan at index 131"),
        (lambda: i2s_quantize(there(X), 0.5, nonfinite="zero"), "nonfinite"),
        (lambda: i2s_quantize(there(X), 0.5, device="cpu"), "legal: on cpu"),
        (lambda: i2s_quantize(there(Q), 0.5), "of dtype int8"),
        (lambda: i2s_quantize(there(X), 0.5, out=np.zeros((6, 128), np.int8)), "in the host's memory"),
        (lambda: ternary_matmul(there(Q), WEIGHTS, out=there(np.zeros((5, 16), np.float32))), r"shape \(5, 16\)"),
        (lambda: ternary_matmul(there(Q), WEIGHTS, act_scale=there(SCALES[:5])), "M = 6"),
        (lambda: QuantizedLinear(WEIGHTS)(there(X)), "on cpu, where the layer is"),
        (lambda: pack_codes(there(CODES + np.int8(1)), 0.5), "2 at"),
    ],
)
def test_what_is_wrong_is_said(simulator: CudaContext, call: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        call()


def test_another_gpu_or_device_is_refused(simulator: CudaContext, monkeypatch: pytest.MonkeyPatch) -> None:
    x = there(X)
    monkeypatch.setattr(x, "index", 1)
    with pytest.raises(DeviceUnavailableError, match="no GPU 1; next: legal: 0 to 0"):
        i2s_quantize(x, 0.5)
    monkeypatch.setattr(x, "kind", 4, raising=False)
    with pytest.raises(InvalidArgumentError, match="type 4"):
        i2s_quantize(x, 0.5)


def test_arrays_that_may_not_be_written_are_taken_copied_and_never_filled(
    simulator: CudaContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NAMESPACE, "__name__", "jax.numpy", raising=False)
    monkeypatch.setattr(MadeUpArray, "reshape", lambda self, shape: there(self.host().reshape(shape)))
    q = activation_quantize(there(X.reshape(2, 3, 128)))
    np.testing.assert_array_equal(host(q.q), activation_quantize(X).q.reshape(2, 3, 128))
    y = QuantizedLinear(WEIGHTS, X[0, :16].copy(), device="cuda")(there(X))
    np.testing.assert_array_equal(host(y), QuantizedLinear(WEIGHTS, X[0, :16].copy())(X))
    with pytest.raises(InvalidArgumentError, match="out is read-only"):
        i2s_quantize(there(X), 0.5, out=there(np.zeros((6, 128), np.int8)))


@rotations
def test_a_layer_binds_once_for_a_shape_and_results_stay_apart(simulator: CudaContext, hadamard: Any) -> None:
    layer, plain = (
        QuantizedLinear(WEIGHTS, hadamard=hadamard, device="cuda"),
        QuantizedLinear(WEIGHTS, hadamard=hadamard),
    )
    rows = [RNG.normal(size=(3, 128)).astype(np.float32) for _ in range(4)]
    found = [layer(there(x)) for x in rows[:2]]
    loaded = simulator.pool.leaks().nbytes
    found += [layer(there(x)) for x in rows[2:]]
    for x, y in zip(rows, found, strict=True):  # no later call wrote to them
        np.testing.assert_array_equal(host(y), plain(x))
    assert simulator.pool.leaks().nbytes == loaded + 2 * plain(rows[0]).nbytes
    assert layer.receipt is not None
    assert layer.receipt.launches >= 8


@rotations
def test_a_layer_on_the_device_refuses_what_is_not_finite_and_goes_on(simulator: CudaContext, hadamard: Any) -> None:
    layer = QuantizedLinear(WEIGHTS, hadamard=hadamard, device="cuda")
    bad = X.copy()
    bad[2, 5] = np.inf
    for _ in range(2):
        found = r"inf at index \(2, 5\)" if hadamard is None else "an infinity or sums above float32 in row 2"
        with pytest.raises(InvalidArgumentError, match=found):
            layer(there(bad))
        np.testing.assert_array_equal(host(layer(there(X))), QuantizedLinear(WEIGHTS, hadamard=hadamard)(X))


@rotations
def test_a_layer_binds_each_call_where_arrays_may_not_be_written(
    simulator: CudaContext, monkeypatch: pytest.MonkeyPatch, hadamard: Any
) -> None:
    monkeypatch.setattr(ForeignArray, "writable", property(lambda self: False))
    monkeypatch.setattr(ForeignArray, "assign", lambda *_: pytest.fail("was written"))
    layer = QuantizedLinear(WEIGHTS, hadamard=hadamard, device="cuda")
    for _ in range(2):
        np.testing.assert_array_equal(host(layer(there(X))), QuantizedLinear(WEIGHTS, hadamard=hadamard)(X))


@rotations
def test_a_layer_takes_arrays_of_tritmarks_own(simulator: CudaContext, hadamard: Any) -> None:
    layer, x = QuantizedLinear(WEIGHTS, hadamard=hadamard, device="cuda"), GpuArray(simulator.upload(X), 0)
    for _ in range(2):
        y = layer._resident(x)
        assert isinstance(y, GpuArray)
        np.testing.assert_array_equal(y.numpy(), QuantizedLinear(WEIGHTS, hadamard=hadamard)(X))
