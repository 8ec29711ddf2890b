"""Layers with experts on CPU tensors: each token's row has the bits of a BitLinear of each of its experts."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from tritmark.harness.errors import InvalidArgumentError  # noqa: E402
from tritmark.kernels.formats.hf_pack import HF_PACK  # noqa: E402
from tritmark.torch import BitExperts, BitLinear  # noqa: E402

OPS = torch.ops.tritmark
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
E, N, K = 6, 22, 128


def state(group: int | None = None, n: int = N, k: int = K, seed: int = 0) -> tuple[Any, Any, Any]:
    """Codes int8, their bytes in Hugging Face's layout, and their scales."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-1, 2, (E, n, k), dtype=np.int8)
    shape = (E,) if group is None else (E, n, k // group)
    scales = rng.uniform(0.5, 2, shape).astype(np.float16).astype(np.float32)
    packed = torch.from_numpy(HF_PACK.pack(codes, 1.0, tail="error"))
    return torch.from_numpy(codes), packed, torch.from_numpy(scales)


def layer(group: int | None = None, **more: Any) -> Any:
    _, packed, scales = state(group, **more)
    return BitExperts.from_packed(packed, scales, out_features=more.get("n", N))


def rows(*shape: int, dtype: Any = torch.float32, seed: int = 1) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32)).to(dtype)


def one_by_one(made: Any, x: Any, experts: Any) -> Any:
    """Each (token, expert) pair by a BitLinear."""
    flat = experts.reshape(-1)
    of_pairs = x if x.ndim == experts.ndim + 1 else x.unsqueeze(-2).expand(*experts.shape, x.shape[-1])
    of_pairs = of_pairs.reshape(-1, x.shape[-1])
    layers = [
        BitLinear.from_packed(made.weight[e], made.weight_scale[e], out_features=made.out_features) for e in range(E)
    ]
    out = torch.stack([layers[e](row) for e, row in zip(flat.tolist(), of_pairs, strict=True)])
    return out.view(*experts.shape, -1)


@settings(max_examples=25, deadline=None)
@given(
    lead=st.lists(st.integers(1, 4), max_size=2),
    k=st.integers(1, 5),
    group=st.sampled_from([None, 32, 64]),
    dtype=st.sampled_from(FLOATS),
    of_pairs=st.booleans(),
    wide=st.booleans(),
    seed=st.integers(0, 99),
)
def test_rows_have_the_bits_of_a_layer_of_their_expert(
    lead: list[int], k: int, group: int | None, dtype: Any, of_pairs: bool, wide: bool, seed: int
) -> None:
    made = layer(group)
    rng = np.random.default_rng(seed)
    experts = torch.from_numpy(rng.integers(0, E, (*lead, k), dtype=np.int64 if wide else np.int32))
    x = rows(*lead, *([k] if of_pairs else []), K, dtype=dtype, seed=seed)
    out = made(x, experts)
    assert (out.dtype, tuple(out.shape)) == (dtype, (*lead, k, N))
    assert torch.equal(out, one_by_one(made, x, experts))


def test_gates_weigh_the_experts_of_a_token() -> None:
    made, x, experts = layer(), rows(3, K), torch.tensor([[0, 5], [2, 2], [4, 1]])
    gates = torch.tensor([[0.5, 0.25], [1.0, 0.0], [2.0, -1.0]])
    wanted = (made(x, experts) * gates.unsqueeze(-1)).sum(-2)
    torch.testing.assert_close(made(x, experts, gates), wanted)


@pytest.mark.parametrize("group", [None, 64])
@pytest.mark.parametrize("of_pairs", [False, True])
def test_the_gradient_is_that_of_dequantized_weights(group: int | None, of_pairs: bool) -> None:
    codes, _, scales = state(group)
    made, experts = layer(group), torch.tensor([[0, 5, 0], [3, 2, 5]])
    x = rows(2, *([3] if of_pairs else []), K).requires_grad_()
    upstream = rows(2, 3, N, seed=7)
    made(x, experts).backward(upstream)
    of_columns = scales.view(E, 1, 1) if group is None else scales.repeat_interleave(group, dim=2)
    dense = codes.float() * of_columns
    wanted = torch.einsum("tkn,tknd->tkd", upstream, dense[experts])
    torch.testing.assert_close(x.grad, wanted if of_pairs else wanted.sum(1))


def test_graphs_are_whole_and_follow_the_weights() -> None:
    made, experts = layer(64), torch.tensor([[0, 5], [3, 2], [1, 1]])
    traced = torch.compile(made, fullgraph=True, backend="aot_eager")
    gates = torch.rand(3, 2)
    for x in (rows(3, K), rows(3, K, seed=5)):
        assert torch.equal(traced(x, experts, gates), made(x, experts, gates))
    made.weight.copy_(state(64, seed=9)[1])
    again = layer(64, seed=9)
    again.weight_scale.copy_(made.weight_scale)
    assert torch.equal(traced(x, experts), again(x, experts))
    x = rows(3, K).requires_grad_()
    traced(x, experts).sum().backward()
    other = x.detach().clone().requires_grad_()
    made(other, experts).sum().backward()
    assert torch.equal(x.grad, other.grad)
    torch._dynamo.reset()


def test_pytorchs_own_checks_pass() -> None:
    made = layer()
    x, experts = rows(3, K).requires_grad_(), torch.tensor([[0, 5], [3, 2], [1, 1]])
    torch.library.opcheck(OPS.bit_experts.default, (x, made.weight, made.weight_scale, experts, N))


def test_states_are_loaded_moved_and_copied() -> None:
    made, experts = layer(32), torch.tensor([[0, 5]])
    x = rows(1, K)
    empty = BitExperts(E, K, N, group_size=32)
    assert not empty(x, experts).any()
    empty.load_state_dict(made.state_dict())
    assert torch.equal(empty(x, experts), made(x, experts))
    assert copy.deepcopy(made).half().weight_scale.dtype is torch.float32
    assert repr(made) == f"BitExperts(num_experts={E}, in_features={K}, out_features={N}, group_size=32)"


def test_float_weights_are_quantized_expert_by_expert() -> None:
    weights, x, experts = rows(E, N, K), rows(2, K), torch.tensor([[0, 5], [3, 3]])
    made = BitExperts.from_float(weights)
    for expert in range(E):
        linear = torch.nn.Linear(K, N, bias=False)
        linear.weight.data = weights[expert]
        own = BitLinear.from_float(linear)
        assert torch.equal(own.weight, made.weight[expert])
        assert float(own.weight_scale) == float(made.weight_scale[expert])
    assert torch.equal(made(x, experts), one_by_one(made, x, experts))


def test_autocast_gives_the_dtype() -> None:
    made, x, experts = layer(), rows(2, K), torch.tensor([[0], [1]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert made(x, experts).dtype is torch.bfloat16


def test_no_tokens_give_nothing() -> None:
    assert layer()(rows(0, K), torch.empty(0, 2, dtype=torch.int64)).shape == (0, 2, N)


@pytest.mark.parametrize(
    ("x", "experts", "why"),
    [
        (rows(2, K), torch.tensor([[0], [6]]), "experts is 6; legal: 0 to 5"),
        (rows(2, K), torch.tensor([[0], [-1]]), "experts is -1; legal: 0 to 5"),
        (rows(2, K), torch.tensor([[0.0], [1.0]]), r"experts is of dtype torch.float32; legal: torch.int64"),
        (rows(3, K), torch.tensor([[0], [1]]), r"x is of shape \(3, 128\); legal: \(2, 128\), a row for each token"),
        (rows(2, K - 1), torch.tensor([[0], [1]]), r"x is of shape \(2, 127\)"),
        (rows(2, K).int(), torch.tensor([[0], [1]]), r"x is of dtype torch.int32"),
        (rows(2, K) / 0, torch.tensor([[0], [1]]), "x is .*inf|x is .*nan"),
    ],
)
def test_arguments_outside_the_contract_are_refused(x: Any, experts: Any, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        layer()(x, experts)


def test_states_outside_the_contract_are_refused() -> None:
    _, packed, scales = state()
    for scale, why in (
        (scales[:-1], r"weight_scale is torch.float32 \(5,\); legal: floats \(6,\)"),
        (scales * 0, r"weight_scale is 0.0 at \(0,\); legal: finite and above zero"),
        (torch.full((E, N, 4), 1.0 + 2.0**-20), r"legal: numbers that float16 holds"),
    ):
        with pytest.raises(InvalidArgumentError, match=why):
            BitExperts.from_packed(packed, scale, out_features=N)
    with pytest.raises(InvalidArgumentError, match=r"out_features is 30; legal: 21 to 24"):
        BitExperts.from_packed(packed, scales, out_features=30)
    with pytest.raises(InvalidArgumentError, match=r"weight is torch.uint8 \(6, 128\)"):
        BitExperts.from_packed(packed[:, 0], scales)


def test_the_product_of_packed_experts_checks_its_arguments() -> None:
    made = layer()
    q, scale = OPS.activation_quantize(rows(3, K))
    packed, format, weight_scale, _ = made.packed
    offsets = torch.tensor([0, 1, 1, 1, 3, 3, 3], dtype=torch.int32)
    given_ = q, packed, weight_scale, scale, offsets, N, format
    experts = torch.tensor([[0], [3], [3]])
    assert torch.equal(OPS.ternary_matmul_experts(*given_), made(rows(3, K), experts)[:, 0])
    for at, changed, why in (
        (4, torch.tensor([0, 1, 1, 1, 3, 3, 4], dtype=torch.int32), "offsets is 4 at index 6; legal: offsets that"),
        (4, offsets[:-1].contiguous(), r"offsets is of shape \(6,\); legal: of shape \(7,\)"),
        (3, scale * 0, "act_scale is 0.0 at index 0"),
        (2, weight_scale[:-1], "weights is .* bytes; legal"),
        (0, q[0], r"activations is of shape \(128,\)"),
    ):
        with pytest.raises(InvalidArgumentError, match=why):
            OPS.ternary_matmul_experts(*given_[:at], changed, *given_[at + 1 :])
