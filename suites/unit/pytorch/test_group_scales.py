"""Layers with a scale for each group of weights, on CPU tensors."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError  # noqa: E402
from tritmark.harness.spec import KernelKey  # noqa: E402
from tritmark.kernels import FORMATS, activation_quantize  # noqa: E402
from tritmark.kernels.formats.hf_pack import HF_PACK  # noqa: E402
from tritmark.kernels.matmul.reference import U_FLOAT32, gamma  # noqa: E402
from tritmark.kernels.ternary_matmul.reference import reference  # noqa: E402
from tritmark.kernels.ternary_matmul_a16.reference import reference as reference_a16  # noqa: E402
from tritmark.kernels.ternary_matmul_a16.spec import NAMES  # noqa: E402
from tritmark.torch import BitLinear, cpu  # noqa: E402

N, K, GROUP = 24, 384, 128


def state(seed: int = 0, group: int = GROUP, shape: tuple[int, int] = (N, K)) -> tuple[Any, Any, Any]:
    """Codes int8, their bytes in Hugging Face's layout, and float32 scales that float16 holds."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-1, 2, shape, dtype=np.int8)
    scales = rng.normal(size=(shape[0], shape[1] // group)).astype(np.float16).astype(np.float32)
    packed = torch.from_numpy(HF_PACK.pack(codes, 1.0, tail="error"))
    return codes, packed, torch.from_numpy(scales)


def layer(seed: int = 0, **more: Any) -> tuple[Any, Any, Any]:
    """A layer, and its codes and scales."""
    codes, packed, scales = state(seed)
    return BitLinear.from_packed(packed, scales, **more), codes, scales


def dequantized(codes: Any, scales: Any) -> Any:
    return torch.from_numpy(codes).float() * scales.repeat_interleave(codes.shape[1] // scales.shape[1], dim=1)


def rows(*lead: int, columns: int = K, dtype: Any = None) -> Any:
    x = np.random.default_rng(1).normal(size=(*lead, columns)).astype(np.float32)
    return torch.from_numpy(x).to(dtype or torch.float32)


@settings(deadline=None, max_examples=25)
@given(st.sampled_from([32, 64, 128, 256]), st.integers(1, 3), st.integers(2, 70), st.integers(0, 5), st.integers(0, 9))
def test_products_are_within_the_bound(group: int, groups: int, n: int, m: int, seed: int) -> None:
    codes, packed, scales = state(seed, group, (n, group * groups))
    x = rows(m, columns=group * groups)
    found = BitLinear.from_packed(packed, scales, out_features=n)(x)
    assert tuple(found.shape) == (m, n)
    if not m:
        return
    quantized = activation_quantize(x.numpy())
    inputs = {
        "activations": quantized.q,
        "weights": codes,
        "weight_scale": scales.numpy(),
        "act_scale": quantized.scale,
    }
    axes = {"M": m, "N": n, "K": group * groups}
    expected = reference(inputs, axes, KernelKey("cpu", "ternary_matmul", f"tile64_g{group}", "float32"))
    assert (np.abs(found.double().numpy() - expected["out"]) <= expected["out.bound"]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rules_of_scales_are_inverse(dtype: Any) -> None:
    _, packed, _ = state()
    powers = torch.from_numpy(2.0 ** np.random.default_rng(2).integers(-6, 6, (N, K // GROUP))).float()
    x = rows(3, dtype=dtype)
    multiplied = BitLinear.from_packed(packed, powers)(x)
    divided = BitLinear.from_packed(packed, 1 / powers, weight_scale_rule="divide")(x)
    assert multiplied.dtype is dtype
    assert torch.equal(multiplied, divided)


def test_a_state_is_saved_and_loaded_strictly() -> None:
    first, _, _ = layer()
    x = rows(2, 3)
    again = BitLinear(K, N, group_size=GROUP)
    assert not again(x).any()
    again.load_state_dict(first.state_dict())
    assert torch.equal(first(x), again(x))
    assert "group_size=128" in repr(again)
    assert again.half().weight_scale.dtype is torch.float32
    assert torch.equal(copy.deepcopy(first)(x), first(x))
    with pytest.raises(RuntimeError, match="weight_scale"):
        BitLinear(K, N).load_state_dict(first.state_dict())
    with pytest.raises(RuntimeError, match="weight_scale"):
        BitLinear(K, N, group_size=32).load_state_dict(first.state_dict())


def test_writes_to_scales_and_weights_are_followed() -> None:
    made, _, _ = layer()
    x = rows(2)
    before = made(x).clone()
    made.weight_scale.mul_(2)
    assert torch.equal(made(x), 2 * before)
    made.weight_scale = made.weight_scale.clone() / 2
    assert torch.equal(made(x), before)
    made.weight_scale.data.mul_(4)
    made.repack()
    assert torch.equal(made(x), 4 * before)
    other, _, _ = layer(seed=5)
    made.weight.copy_(other.weight)
    made.weight_scale.copy_(other.weight_scale)
    assert torch.equal(made(x), other(x))


def test_scales_at_a_reused_address_are_read_again() -> None:
    """The op without a layer, which keeps nothing of the scales but what was made from them."""
    _, packed, scales = state()
    x, product = rows(2), torch.ops.tritmark.bit_linear_forward
    once = product(x, packed, scales, N)
    for power in range(1, 9):
        assert torch.equal(product(x, packed, scales * 2.0**power, N), once * 2.0**power)


def test_a_layer_with_one_scale_refuses_several() -> None:
    _, packed, scales = state()
    made = BitLinear(K, N)
    made.weight, made.weight_scale = packed, scales
    with pytest.raises(InvalidArgumentError, match="weight_scale is of shape"):
        made(rows(1))


def test_graphs_and_gradients() -> None:
    made, codes, scales = layer()
    x = rows(4).requires_grad_()
    found = made(x)
    found.sum().backward()
    wide = dequantized(codes, scales).double()
    off = (x.grad.double() - wide.sum(0)).abs()
    assert (off <= gamma(N, U_FLOAT32) * wide.abs().sum(0)).all()
    traced = torch.compile(made, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(traced(x), found)
        made.weight_scale.mul_(2)
        assert torch.equal(traced(x), made(x))
    exported = torch.export.export(made, (x.detach(),))
    assert torch.equal(exported.module()(x.detach()), made(x.detach()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits(dtype: Any) -> None:
    made, codes, scales = layer(activation_bits=16)
    x = rows(3, dtype=dtype)
    found, name = made(x), str(dtype)[6:]
    assert found.dtype is dtype
    inputs = {"activations": cpu.numpy(x), "weights": codes, "weight_scale": scales.numpy()}
    key = KernelKey("cuda", NAMES[name], f"row16_g{GROUP}", name)
    expected = reference_a16(inputs, {"M": 3, "N": N, "K": K}, key)
    assert (np.abs(found.double().numpy() - expected["out"]) <= expected["out.bound"]).all()


def test_it_recovers() -> None:
    made, _, _ = layer(on_error="recover")
    x = rows(3)
    plain, _, _ = layer()
    assert torch.equal(made(x), plain(x))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda scales: scales.index_fill(0, torch.tensor([3]), np.nan), "nan at (3, 0)"),
        (lambda scales: scales.index_fill(1, torch.tensor([2]), np.inf), "inf at (0, 2)"),
        (lambda scales: scales + 2.0**-20, "at (0, 0)"),
        (lambda scales: scales[:, :2], "of shape (24, 2)"),
        (lambda scales: scales[:5], "of shape (5, 3)"),
        (lambda scales: scales.reshape(-1), "of shape (72,)"),
    ],
)
def test_scales_that_kernels_do_not_take_are_refused(change: Any, found: str) -> None:
    _, packed, scales = state()
    scales = torch.ones_like(scales) if "at (0, 0)" in found else scales
    made = BitLinear(K, N, group_size=GROUP)
    made.weight, made.weight_scale = packed, change(scales)
    with pytest.raises(InvalidArgumentError) as caught:
        made(rows(1))
    assert caught.value.argument == "weight_scale"
    assert found in str(caught.value)


@pytest.mark.parametrize("group", [0, -1, 100, 2.0, True])
def test_sizes_of_groups_that_do_not_divide_are_refused(group: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="group_size"):
        BitLinear(K, N, group_size=group)


def test_a_size_without_kernels_is_named() -> None:
    _, packed, scales = state(0, 48)
    with pytest.raises(NoCompatibleKernelError, match="groups of 48"):
        BitLinear.from_packed(packed, scales)(rows(1))


def test_the_format_holds_the_scales() -> None:
    made, codes, scales = layer()
    packed, format, _ = made._followed.derived
    found, stored = FORMATS[format].unpack(packed.numpy(), (N, K))
    assert np.array_equal(found, codes)
    assert np.array_equal(stored, scales.numpy())
