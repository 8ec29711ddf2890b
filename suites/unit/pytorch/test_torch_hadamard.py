"""Rotated activations in PyTorch: the ops have the bits of the NumPy function, and a layer the exact product."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from plain_bitlinear import hf_packed  # noqa: E402

from tritmark.harness.errors import InvalidArgumentError  # noqa: E402
from tritmark.harness.weights.hadamard import transformed  # noqa: E402
from tritmark.kernels import hadamard_quantize  # noqa: E402
from tritmark.torch import BitLinear  # noqa: E402

OPS = torch.ops.tritmark
N, K, BLOCK, SCALE = 24, 512, 256, 0.375
RNG = np.random.default_rng(0)
SIGNS = torch.from_numpy(RNG.choice(np.array([-1, 1], np.int8), K))
CODES = RNG.integers(-1, 2, (N, K)).astype(np.int8)
EXACT = torch.from_numpy(RNG.integers(-64, 65, (2, 3, K)) / 16).float()


@pytest.mark.parametrize("signs", [SIGNS, None], ids=["signs", "none"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_ops_are_the_numpy_function(dtype: Any, signs: Any) -> None:
    x = torch.randn((2, 3, K), generator=torch.Generator().manual_seed(1))
    taken = None if signs is None else signs.numpy()
    codes, scale = OPS.hadamard_quantize(x, signs, BLOCK)
    wanted = hadamard_quantize(x.numpy(), taken, block_size=BLOCK)
    assert np.array_equal(codes.numpy(), wanted.q)
    assert np.array_equal(scale.numpy(), wanted.scale)
    for inverse in (False, True):
        y = OPS.hadamard_transform(x, signs, BLOCK, inverse, getattr(torch, dtype))
        other = hadamard_quantize(x.numpy(), taken, block_size=BLOCK, dtype=dtype, inverse=inverse)
        assert torch.equal(y.float(), torch.from_numpy(other.astype(np.float32)))


def test_the_gradient_is_the_transpose() -> None:
    x = EXACT.clone().requires_grad_()
    upstream = EXACT.flip(0)
    OPS.hadamard_transform(x, SIGNS, BLOCK).backward(upstream)
    assert torch.equal(x.grad, OPS.hadamard_transform(upstream, SIGNS, BLOCK, True))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((EXACT, SIGNS, 96), "96 for 512 columns"),
        ((EXACT, SIGNS, 1024), "1024 for 512 columns"),
        ((EXACT, SIGNS[:64], BLOCK), r"shape \(64,\)"),
        ((EXACT, SIGNS.float(), BLOCK), "int8"),
        ((EXACT, torch.zeros(K, dtype=torch.int8), BLOCK), "0 at index 0"),
        ((EXACT.double(), SIGNS, BLOCK), "float64"),
        ((torch.full((K,), torch.nan), SIGNS, BLOCK), "nan at index 0"),
        ((torch.full((K,), 3e38), None, BLOCK), "sums above float32"),
    ],
)
def test_bad_arguments_are_refused(arguments: Any, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        OPS.hadamard_quantize(*arguments)


def layer(**more: Any) -> Any:
    return BitLinear.from_packed(
        hf_packed(torch.from_numpy(CODES)), SCALE, out_features=N, hadamard=(BLOCK, SIGNS), **more
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_is_the_product_of_the_rotated_row(dtype: Any) -> None:
    """Against float64: inputs whose rotation is exact, and the codes of the rotated row."""
    y = transformed(EXACT.numpy(), BLOCK, SIGNS.numpy())
    scale = (127 / np.abs(y).max(axis=-1, keepdims=True)).astype(np.float32)
    codes = np.rint((y * scale).astype(np.float32))
    wanted = ((codes @ CODES.T.astype(np.float64)) * (SCALE / scale.astype(np.float64))).astype(np.float32)
    found = layer()(EXACT.to(dtype))
    assert found.dtype is dtype
    assert torch.equal(found, torch.from_numpy(wanted).to(dtype))


def test_a_layer_with_16_bits_rotates_in_its_dtype() -> None:
    found = layer(activation_bits=16)(EXACT.bfloat16())
    y = torch.from_numpy(transformed(EXACT.numpy(), BLOCK, SIGNS.numpy())).to(torch.bfloat16)
    wanted = y.double() @ torch.from_numpy(CODES.T.astype(np.float64)) * SCALE
    torch.testing.assert_close(found.double(), wanted, rtol=2**-8, atol=2**-10 * float(y.abs().sum(-1).max()))


def test_a_layer_keeps_its_rotation() -> None:
    made = layer()
    assert "hadamard_signs" not in made.state_dict()
    assert made.hadamard_signs.dtype is torch.int8
    assert "hadamard_block=256" in repr(made)
    half = copy.deepcopy(made).half()
    assert half.hadamard_signs.dtype is torch.int8
    assert torch.equal(half(EXACT), made(EXACT))
    empty = BitLinear(K, N, hadamard=(BLOCK, None))
    empty.load_state_dict(made.state_dict())
    plain = BitLinear.from_packed(made.weight, SCALE, out_features=N)
    assert torch.equal(empty(EXACT), plain(OPS.hadamard_transform(EXACT, None, BLOCK)))
    x = EXACT.clone().requires_grad_()
    made(x).sum().backward()
    weights = torch.from_numpy(CODES).float().sum(0) * SCALE
    assert torch.equal(x.grad[0, 0], OPS.hadamard_transform(weights, SIGNS, BLOCK, True))


def test_a_layer_is_one_graph() -> None:
    made = layer()
    assert torch.equal(torch.compile(made, fullgraph=True, backend="aot_eager")(EXACT), made(EXACT))
    torch._dynamo.reset()


@pytest.mark.parametrize("rotation", [(96, None), (1024, None), (BLOCK, torch.zeros(K)), (BLOCK, SIGNS[:64])])
def test_a_layer_refuses_a_rotation_that_does_not_fit(rotation: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="hadamard"):
        BitLinear(K, N, hadamard=rotation)
