"""torch.ops.tritmark.ternary_matmul_a16 and BitLinear with activations of 16 bits, on CPU tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from tritmark.harness.errors import InvalidArgumentError  # noqa: E402
from tritmark.harness.spec import KernelKey  # noqa: E402
from tritmark.kernels import FORMATS  # noqa: E402
from tritmark.kernels.ternary_matmul_a16.reference import reference  # noqa: E402
from tritmark.kernels.ternary_matmul_a16.spec import NAMES  # noqa: E402
from tritmark.torch import BitLinear, cpu, ops  # noqa: E402, F401

OP = torch.ops.tritmark.ternary_matmul_a16
HALVES = (torch.bfloat16, torch.float16)
N, K, SCALE = 40, 96, 0.375
CODES = torch.from_numpy(np.random.default_rng(0).integers(-1, 2, (N, K), dtype=np.int8))
PACKED = torch.from_numpy(FORMATS["tile64"].pack(CODES.numpy(), np.float32(SCALE), tail="error"))
WEIGHTS = (PACKED, SCALE, N, "tile64")


def rows(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.from_numpy(np.random.default_rng(1).normal(size=shape)).to(dtype)


@pytest.mark.parametrize("out", [None, torch.float32, *HALVES])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("lead", [(), (1,), (2, 3), (0,), (2, 0)])
def test_it_is_within_the_bound(lead: tuple[int, ...], dtype: Any, out: Any) -> None:
    x = rows(*lead, K, dtype=dtype)
    found = OP(x, *WEIGHTS, out)
    assert (tuple(found.shape), found.dtype) == ((*lead, N), out or dtype)
    if x.numel():
        name = str(dtype)[6:]
        inputs = {
            "activations": cpu.numpy(x.reshape(-1, K)),
            "weights": CODES.numpy(),
            "weight_scale": np.float32(SCALE),
        }
        key = KernelKey("cpu", NAMES[name], "tile64", str(out or dtype)[6:])
        expected = reference(inputs, {}, key)
        error = np.abs(found.double().reshape(-1, N).numpy() - expected["out"])
        assert (error <= expected["out.bound"]).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_are_those_of_dequantized_weights(dtype: Any) -> None:
    x = rows(3, 2, K, dtype=dtype).requires_grad_()
    OP(x, *WEIGHTS).sum().backward()
    expected = (torch.ones(3, 2, N) @ CODES.float() * SCALE).to(dtype)
    assert torch.allclose(x.grad, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"activations": torch.ones(2, K)}, "activations"),
        ({"activations": torch.ones(2, 0, dtype=torch.bfloat16)}, "activations"),
        ({"weights": PACKED[:-1]}, "weights"),
        ({"format": "nothing"}, "format"),
        ({"format": "iq2_bn"}, "format"),
        ({"weight_scale": 0.0}, "weight_scale"),
        ({"out_dtype": torch.int32}, "out_dtype"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], argument: str) -> None:
    good = {"activations": rows(2, K), "weights": PACKED, "weight_scale": SCALE, "N": N, "format": "tile64"}
    with pytest.raises(InvalidArgumentError) as caught:
        OP(**{**good, **change})
    assert caught.value.argument == argument


def layers(bias: bool) -> tuple[Any, Any]:
    linear = torch.nn.Linear(K, N, bias=bias)
    return BitLinear.from_float(linear), BitLinear.from_float(linear, activation_bits=16)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", HALVES)
def test_a_layer_does_not_quantize_activations(dtype: Any, bias: bool) -> None:
    eight, sixteen = layers(bias)
    x = rows(5, K, dtype=dtype)
    codes = torch.ops.tritmark.unpack(sixteen.weight, N, K, "hf_pack")
    dense = x.float() @ codes.float().t() * sixteen.weight_scale
    expected = (dense + sixteen.bias if bias else dense).to(dtype)
    found = sixteen(x)
    assert found.dtype == dtype
    assert torch.allclose(found, expected, rtol=1e-2, atol=1e-3)
    assert not torch.equal(found, eight(x))


def test_the_state_is_the_same() -> None:
    eight, sixteen = layers(True)
    assert {name: value.shape for name, value in eight.state_dict().items()} == {
        name: value.shape for name, value in sixteen.state_dict().items()
    }
    fresh = BitLinear(K, N, bias=True, activation_bits=16)
    fresh.load_state_dict(eight.state_dict())
    assert torch.equal(fresh(rows(2, K)), sixteen(rows(2, K)))
    assert repr(fresh).endswith("bias=True, activation_bits=16)")


def test_under_autocast_inputs_are_brought_to_its_dtype() -> None:
    _, layer = layers(False)
    x = rows(2, K, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x), layer(x.bfloat16()))


def test_other_inputs_and_widths_are_refused() -> None:
    _, layer = layers(False)
    with pytest.raises(InvalidArgumentError, match="float32"):
        layer(rows(2, K, dtype=torch.float32))
    with pytest.raises(InvalidArgumentError, match="activation_bits"):
        BitLinear(K, N, activation_bits=4)


def test_gradients_go_through_a_layer() -> None:
    _, layer = layers(True)
    x = rows(3, K).requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None
    assert torch.allclose(layer.bias.grad, torch.full((N,), 3.0))


def test_a_layer_is_one_graph() -> None:
    _, layer = layers(True)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert torch.equal(compiled(rows(4, K)), layer(rows(4, K)))
