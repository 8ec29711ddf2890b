"""CPU tensors as arguments of the functions of tritmark.kernels: results are tensors in the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from tritmark.harness.errors import InvalidArgumentError  # noqa: E402
from tritmark.kernels import (  # noqa: E402
    QuantizedLinear,
    absmean_quantize,
    activation_quantize,
    i2s_dequantize,
    i2s_quantize,
    pack_weights,
    ternary_matmul,
    ternary_quantize,
)
from tritmark.torch import cpu  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 128)).astype(np.float32)
CODES = RNG.integers(-1, 2, (16, 128), dtype=np.int8)
Q = RNG.integers(-128, 128, (6, 128), dtype=np.int8)
WEIGHTS = pack_weights(CODES, 0.5)
CALLS: dict[str, Any] = {
    "absmean_quantize": lambda take: absmean_quantize(take(X)),
    "activation_quantize": lambda take: activation_quantize(take(X)),
    "by name": lambda take: activation_quantize(x=take(X)),
    "i2s_dequantize": lambda take: i2s_dequantize(take(CODES), 0.5),
    "i2s_quantize": lambda take: i2s_quantize(take(X), 0.5),
    "ternary_matmul": lambda take: ternary_matmul(take(Q), WEIGHTS, act_scale=take(np.ones(6, np.float32) * 3)),
    "ternary_matmul to bfloat16": lambda take: ternary_matmul(take(Q), WEIGHTS, dtype="bfloat16"),
    "ternary_matmul of a vector": lambda take: ternary_matmul(take(Q[0]), WEIGHTS, dtype="int32"),
    "ternary_quantize": lambda take: ternary_quantize(take(X), packed=True),
    "QuantizedLinear": lambda take: QuantizedLinear(take(X), take(X[0, :6].copy()))(take(X)),
    "QuantizedLinear with hadamard": lambda take: QuantizedLinear(
        take(X), hadamard=(64, take(np.sign(X[0]).astype(np.int8)))
    )(take(X)),
}


def tensor(array: Any) -> Any:
    return torch.from_numpy(array.copy()).requires_grad_(array.dtype.kind == "f")


@pytest.mark.parametrize("name", CALLS)
def test_results_are_tensors_of_the_same_bits(name: str) -> None:
    made, expected = (CALLS[name](take) for take in (tensor, lambda array: array))
    pairs = zip(made, expected, strict=True) if isinstance(expected, tuple) else [(made, expected)]
    for found, wanted in pairs:
        assert isinstance(found, torch.Tensor) == isinstance(wanted, np.ndarray)
        np.testing.assert_array_equal(cpu.numpy(found) if isinstance(found, torch.Tensor) else found, wanted)


def test_memory_is_shared_with_tensors() -> None:
    out = torch.zeros(6, 128, dtype=torch.int8)
    assert i2s_quantize(torch.from_numpy(X), torch.tensor(0.5), out=out) is out
    np.testing.assert_array_equal(cpu.numpy(out), i2s_quantize(X, 0.5))


def test_numpy_stays_numpy() -> None:
    assert type(i2s_quantize(X, 0.5)) is np.ndarray
    assert type(QuantizedLinear(torch.from_numpy(X))(X)) is np.ndarray


@pytest.mark.parametrize("value", [X.tolist(), None, 3, torch.zeros(2, 2).to_sparse(), torch.zeros(2, device="meta")])
def test_what_is_no_array_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        i2s_quantize(value, 0.5)
